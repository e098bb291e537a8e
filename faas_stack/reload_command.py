"""``carpool reload``: reload a function's model without losing a request."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any
from urllib.parse import quote

from carpool import durations
from faas_stack import ready_timeout, system_api

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Reload a function, and print the result.

    Raises:
        ConfigError: An option cannot be used.
        CarpoolError: The function was not reloaded; the previous instances continue to run.
    """
    args = _parser().parse_args(argv)
    ready_s = ready_timeout.seconds(args)
    done = _reload(args, ready_s)
    sys.stdout.write(f"{json.dumps(done)}\n" if args.json else f"{_summary(done)}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    about = (
        "Reload a function's code and model. New instances are ready before old ones stop; if "
        "they do not become ready, the old ones keep serving."
    )
    parser = argparse.ArgumentParser(prog="carpool reload", description=about)
    add = parser.add_argument
    add("function", help="the function's name")
    ready_timeout.add_flag(parser)
    system_api.add_flags(parser)
    add("--json", action="store_true", help="print the result as one line of JSON")
    return parser


def _reload(args: argparse.Namespace, ready_s: float) -> dict[str, Any]:
    """Ask the provider to reload the function, and return its response.

    Raises:
        CarpoolError: The provider cannot be reached, or the function was not reloaded.
    """
    path = f"/system/reload-function/{quote(args.function, safe='')}"
    query = {"timeout": durations.format(ready_s)}
    # Each class of a scaled function has this time, and may wait for another reload.
    done: dict[str, Any] = system_api.ask(args, "POST", path, query, answer_s=None).json()
    return done


def _summary(done: dict[str, Any]) -> str:
    name, replicas = done["name"], done["replicas"]
    instances = f"{replicas} instance{'s' * (replicas != 1)}"
    if not replicas:
        return f"{name}: no instance runs; the next one loads the new files"
    if not done["finished"]:
        return f"{name}: {instances} being replaced one by one; kubectl rollout status follows it"
    return f"{name}: {instances} reloaded in {done['seconds']:.1f} s"
