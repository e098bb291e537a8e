"""``carpool policies``: every policy that has a name, with its origin and parameters."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from typing import Any

from carpool import plugins
from carpool.errors import ConfigError

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """List the batch policies; a policy that cannot be imported is shown with the reason."""
    parser = argparse.ArgumentParser(prog="carpool policies", description="List batch policies.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args(argv)
    described = [_described(found) for found in plugins.listed("batch")]
    sys.stdout.write(_as_json(described) if arguments.json else _as_text(described))
    return 0


def _described(found: plugins.Found) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": found.name,
        "kind": "batch",
        "origin": found.origin,
        "target": found.target,
    }
    try:
        policy_class = plugins.load(found.name, found.target)
    except ConfigError as error:
        return {**entry, "params": {}, "summary": "", "error": str(error)}
    summary = (policy_class.__doc__ or "").strip().partition("\n")[0]
    return {**entry, "params": _defaults(policy_class), "summary": summary}


def _defaults(policy_class: type[Any]) -> dict[str, Any]:
    """Parameters by name; one without a default is shown as ``required``."""
    form = getattr(policy_class, "Params", None)
    fields = dataclasses.fields(form) if dataclasses.is_dataclass(form) else ()
    return {field.name: _default(field) for field in fields if field.init}


def _default(field: dataclasses.Field[Any]) -> Any:  # noqa: ANN401  a default can be anything
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return "required"


def _as_json(described: list[dict[str, Any]]) -> str:
    return json.dumps({"policies": described}, indent=2, default=repr) + "\n"


def _as_text(described: list[dict[str, Any]]) -> str:
    width = max((len(entry["name"]) for entry in described), default=0)
    lines = []
    for entry in described:
        lines.append(f"{entry['name']:<{width}}  {entry.get('error') or entry['summary']}")
        params = ", ".join(f"{name}={value}" for name, value in entry["params"].items())
        lines.append(f"{'':<{width}}  {entry['origin']}; parameters: {params or 'none'}")
    return "\n".join(lines) + "\n"
