"""``carpool policies``: every policy that has a name, with its origin and parameters.

With ``--check`` it runs the suite of `carpool.testing` on one, which need not have a name.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
from typing import TYPE_CHECKING, Any

from carpool import plugins
from carpool.errors import ConfigError, Problem
from carpool.params_argument import read_params
from carpool.testing import BrokenPromise, check_policy, check_scale_policy
from carpool.validation.problems import nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.testing import Report, ScaleReport

__all__ = ["main"]

_SUITES: dict[plugins.Kind, Callable[[str, dict[str, Any]], Report | ScaleReport]] = {
    "batch": check_policy,
    "scale": check_scale_policy,
}
_METHODS: dict[plugins.Kind, tuple[str, ...]] = {
    "batch": ("depart", "decide", "observe"),
    "scale": ("propose",),
    "prewarm": ("observe", "windows", "to_dict", "absorb"),
}


def main(argv: list[str]) -> int:
    """List the policies, or check one; return 1 if it breaks a promise.

    Raises:
        ConfigError: the policy to check cannot be found or created.
    """
    parser = argparse.ArgumentParser(
        prog="carpool policies", description="List policies, or check one."
    )
    kinds = tuple(_METHODS)
    parser.add_argument(
        "--kind",
        choices=kinds,
        help="list only policies of this kind; with --check: the policy's kind, batch or scale",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument(
        "--check", metavar="POLICY", help="check a policy, by name or as pkg.module:Class"
    )
    parser.add_argument("--params", default="{}", help="parameters for --check, as JSON")
    arguments = parser.parse_args(argv)
    if arguments.check:
        kind: plugins.Kind = arguments.kind or _kind_of(arguments.check)
        return _check(
            kind,
            arguments.check,
            read_params(arguments.params, '{"wait_s": 0.02}'),
            as_json=arguments.json,
        )
    chosen = [arguments.kind] if arguments.kind else kinds
    described = [_described(kind, policy) for kind in chosen for policy in plugins.listed(kind)]
    sys.stdout.write(_as_json({"policies": described}) if arguments.json else _as_text(described))
    return 0


def _kind_of(policy: str) -> plugins.Kind:
    """Return the first kind in which the policy can be found and has the required methods.

    Raises:
        ConfigError: No kind has this name.
    """
    names = {kind: {known.name for known in plugins.listed(kind)} for kind in _METHODS}
    every = sorted(set().union(*names.values()))
    if ":" not in policy and policy not in every:
        expected = f"one of {', '.join([*every, 'pkg.module:Class'])}"
        raise ConfigError([Problem("--check", policy, expected, nearest(policy, every))])
    kinds = [kind for kind in _METHODS if ":" in policy or policy in names[kind]]
    for kind in kinds:
        if not _lacking(kind, plugins.resolve(kind, policy)):
            return kind
    return kinds[0]


def _lacking(policy_kind: plugins.Kind, policy_class: type) -> list[str]:
    """Return the methods that the class lacks for a policy of this kind."""
    return [
        name for name in _METHODS[policy_kind] if not callable(getattr(policy_class, name, None))
    ]


def _check(kind: plugins.Kind, policy: str, params: dict[str, Any], *, as_json: bool) -> int:
    if kind not in _SUITES:
        expected, hint = f"a {' or '.join(_SUITES)} policy", f"{kind} policies cannot be checked"
        raise ConfigError([Problem("--check", policy, expected, hint)])
    lacking = _lacking(kind, plugins.resolve(kind, policy))
    if lacking:
        expected = f"a {kind} policy, which has the methods {', '.join(_METHODS[kind])}"
        hint = f"it lacks {', '.join(lacking)}; if it is of another kind, say which with --kind"
        raise ConfigError([Problem("--check", policy, expected, hint)])
    outcome: dict[str, Any]
    try:
        report = _SUITES[kind](policy, params)
    except BrokenPromise as broken:
        text, exit_code = str(broken), 1
        outcome = {name: getattr(broken, name) for name in ("promise", "detail", "seed")}
        outcome |= {"policy": broken.policy, "ok": False, "scenario": broken.scenario}
    else:
        text, exit_code = str(report), 0
        outcome = {**dataclasses.asdict(report), "ok": True}
    sys.stdout.write(_as_json(outcome) if as_json else text + "\n")
    return exit_code


def _described(kind: plugins.Kind, policy: plugins.ListedPolicy) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": policy.name,
        "kind": kind,
        "origin": policy.origin,
        "target": policy.target,
        "params": {},
        "knobs": {},
        "summary": "",
    }
    try:
        policy_class = plugins.load(policy.name, policy.target)
    except ConfigError as error:
        return {**entry, "error": str(error)}
    translated = plugins.knobs(policy_class).values()
    entry["params"] = _defaults(policy_class)
    entry["knobs"] = {knob.name: knob.parameter for knob in translated if knob.parameter}
    summary, _, _ = (policy_class.__doc__ or "").strip().partition("\n")
    entry["summary"] = summary.replace("``", "`")
    return entry


def _defaults(policy_class: type[Any]) -> dict[str, Any]:
    """Return defaults of parameters by name; ``required`` for those without one."""
    data = getattr(policy_class, "Params", None)
    fields = dataclasses.fields(data) if dataclasses.is_dataclass(data) else ()
    return {field.name: _default(field) for field in fields if field.init}


def _default(field: dataclasses.Field[Any]) -> Any:  # noqa: ANN401  a default can be anything
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return "required"


def _as_json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, default=repr) + "\n"


def _as_text(described: list[dict[str, Any]]) -> str:
    width = max((len(entry["name"]) for entry in described), default=0)
    lines = []
    for kind, entries in itertools.groupby(described, lambda entry: str(entry["kind"])):
        lines.append(f"{kind} policies")
        lines += [f"  {line}" for entry in entries for line in _lines(entry, width)]
    return "\n".join(lines) + "\n"


def _lines(entry: dict[str, Any], width: int) -> list[str]:
    lines = [f"{entry['name']:<{width}}  {entry.get('error') or entry['summary']}"]
    params = ", ".join(f"{name}={value}" for name, value in entry["params"].items())
    lines.append(f"{'':<{width}}  {entry['origin']}; parameters: {params or 'none'}")
    if entry["knobs"]:
        knobs = ", ".join(f"{name} ({own})" for name, own in entry["knobs"].items())
        lines.append(f"{'':<{width}}  also accepts other servers' names: {knobs}")
    return lines
