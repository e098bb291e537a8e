"""``carpool canary``: which functions answer a share of a function's calls, shown or set."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from carpool.errors import ConfigError, Problem
from carpool.function_status import REASON
from carpool.settings import CANARY_LABEL, FunctionSettings
from faas_stack import system_api

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["main"]

_ALL = 100.0  # percent
_DEPLOYED = (
    *("image", "namespace", "envProcess", "envVars", "constraints", "secrets"),
    *("limits", "requests", "readOnlyRootFilesystem"),
)


def main(argv: list[str]) -> int:
    """Set the shares, if any are given, and print them.

    Raises:
        ConfigError: If a flag is invalid.
        CarpoolError: If the provider cannot be reached or refuses, or if a canary does not exist.
    """
    args = _parser().parse_args(argv)
    if args.off and args.shares:
        raise ConfigError([Problem("--off", ", ".join(args.shares), "either --off or shares")])
    status = system_api.ask(args, "GET", f"/system/function/{quote(args.function, safe='')}").json()
    if args.off or args.shares:
        shares = _read(",".join(args.shares))
        _check_there(args, status, shares)
        status = _with(status, shares)
        system_api.ask(args, "PUT", "/system/functions", status)
    _print(args, _shares(args.function, status))
    return 0


def _parser() -> argparse.ArgumentParser:
    about = (
        "Show or set which functions answer a share of a function's calls. New shares apply from "
        "the next call on, without restarts."
    )
    parser = argparse.ArgumentParser(prog="carpool canary", description=about)
    add = parser.add_argument
    add("function", help="the name of the function that is called")
    add(
        "shares",
        nargs="*",
        metavar="CANARY=PERCENT",
        help="another function and its share of the calls, such as classify-v2=10; replaces all "
        "shares that were set before",
    )
    add("--off", action="store_true", help="leave all calls to the function itself")
    system_api.add_flags(parser)
    add("--json", action="store_true", help="print the shares as one line of JSON")
    return parser


def _read(text: str) -> Mapping[str, float]:
    """Return the shares in the text of a label."""
    return FunctionSettings.from_labels({CANARY_LABEL: text}).canary


def _check_there(
    args: argparse.Namespace, status: Mapping[str, Any], shares: Mapping[str, float]
) -> None:
    """Refuse a canary that is not deployed, as the function itself would answer its share.

    Raises:
        CarpoolError: If the provider does not have it.
    """
    namespace = quote(str(status.get("namespace") or ""), safe="")
    for name in shares:
        system_api.ask(
            args, "GET", f"/system/function/{quote(name, safe='')}?namespace={namespace}"
        )


def _with(status: Mapping[str, Any], shares: Mapping[str, float]) -> dict[str, Any]:
    """Return the deployment of a function with other shares and otherwise unchanged."""
    labels, annotations = (
        {k: v for k, v in (status.get(field_name) or {}).items() if k not in (CANARY_LABEL, REASON)}
        for field_name in ("labels", "annotations")
    )
    if shares:
        labels[CANARY_LABEL] = ",".join(f"{name}={percent:g}%" for name, percent in shares.items())
    kept = {key: status[key] for key in _DEPLOYED if status.get(key)}
    return {**kept, "service": status["name"], "labels": labels, "annotations": annotations}


def _shares(function: str, status: Mapping[str, Any]) -> dict[str, float]:
    """Return the percentage of calls by function, the function itself first."""
    texts = {**(status.get("annotations") or {}), **(status.get("labels") or {})}
    shares = _read(texts.get(CANARY_LABEL, ""))
    return {function: _ALL - sum(shares.values()), **shares}


def _print(args: argparse.Namespace, shares: Mapping[str, float]) -> None:
    if args.json:
        sys.stdout.write(json.dumps({"function": args.function, "percent": shares}) + "\n")
        return
    width = max(map(len, shares))
    for name, percent in shares.items():
        sys.stdout.write(f"{name:{width}}  {percent:g} %\n")
