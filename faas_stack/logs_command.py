"""``carpool logs``: print the output of a function that its provider keeps, and follow it."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import requests

from carpool import durations
from carpool.direct_session import direct_session
from carpool.errors import ConfigError, Problem
from faas_stack import system_api

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["main"]

_SILENT_S = 15.0


def main(argv: list[str]) -> int:
    """Print the lines, oldest first; with ``--follow``, continue until Ctrl-C.

    Raises:
        ConfigError: If a flag is invalid.
    """
    args = _parser().parse_args(argv)
    query = _query(args)
    for line in _lines(args, query):
        sys.stdout.write(f"{line}\n" if args.json else _text(json.loads(line)))
        sys.stdout.flush()
    return 0


def _parser() -> argparse.ArgumentParser:
    about = "Print the output of a function's instances, including the handler's own messages."
    parser = argparse.ArgumentParser(prog="carpool logs", description=about)
    add = parser.add_argument
    add(
        "function",
        help="the function's name; NAME--CLASS for an instance class of a scaled function",
    )
    add("-f", "--follow", action="store_true", help="keep printing new lines until Ctrl-C")
    add("--tail", type=int, default=0, metavar="N", help="only the last N lines")
    add("--since", metavar="TIME", help="only lines of this period, such as 5m")
    add("--instance", default="", help="only lines of this instance")
    system_api.add_flags(parser)
    add("--json", action="store_true", help="print each line as the provider's JSON")
    return parser


def _query(args: argparse.Namespace) -> dict[str, str]:
    query = {"name": args.function, "instance": args.instance, "tail": str(max(args.tail, 0))}
    if args.since:
        try:
            since = datetime.now(UTC) - timedelta(seconds=durations.parse(args.since))
        except (durations.DurationError, OverflowError) as error:
            raise ConfigError([Problem("--since", args.since, "a duration such as 5m")]) from error
        query["since"] = since.isoformat()
    return query | ({"follow": "true"} if args.follow else {})


def _lines(args: argparse.Namespace, query: dict[str, str]) -> Iterator[str]:
    """Yield the provider's lines.

    Raises:
        CarpoolError: If it cannot be reached or refuses.
    """
    pair = system_api.credentials(args)
    url = args.gateway.rstrip("/") + "/system/logs"
    timeout_s = (system_api.CONNECT_S, None if args.follow else _SILENT_S)
    try:
        with (
            direct_session() as session,
            session.get(url, params=query, auth=pair, stream=True, timeout=timeout_s) as answer,
        ):
            if answer.status_code != requests.codes.ok:
                raise system_api.RequestRefused(args.gateway, answer)
            for line in answer.iter_lines(chunk_size=None):
                yield line.decode("utf-8", "replace")
    except requests.RequestException as error:
        raise system_api.Unreachable(args.gateway, error) from error


def _text(line: dict[str, str]) -> str:
    at = datetime.fromisoformat(line["timestamp"]).astimezone()
    return f"{at:%H:%M:%S} {line['instance']}  {line['text']}\n"
