"""``carpool logs``: what a function prints, as its provider keeps it, and as it comes."""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import requests

from carpool import basic_auth, durations
from carpool.errors import CarpoolError, ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["main"]

_GATEWAY = "http://127.0.0.1:8080"
_CONNECT_S, _SILENT_S = 3.0, 15.0


class _NoLogs(CarpoolError):
    """The provider cannot be reached, or refuses."""


def main(argv: list[str]) -> int:
    """Print the lines, oldest first; with ``--follow`` until Ctrl-C.

    Raises:
        ConfigError: flags that cannot be used.
    """
    args = _parser().parse_args(argv)
    query = _query(args)
    try:
        for line in _lines(args, query):
            sys.stdout.write(f"{line}\n" if args.json else _text(json.loads(line)))
            sys.stdout.flush()
    except BrokenPipeError:  # `| head` has what it wanted; nothing is to be flushed at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parser() -> argparse.ArgumentParser:
    about = (
        "print what a function's instances print: the handler's notes and failures, and your own"
    )
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
    default = os.environ.get("OPENFAAS_URL") or _GATEWAY
    add(
        "-g",
        "--gateway",
        default=default,
        metavar="URL",
        help="gateway or provider (default: %(default)s)",
    )
    files = "folder with the credentials (default: those of a provider started on this machine)"
    add("--basic-auth", type=Path, metavar="DIR", help=files)
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
    """The provider's lines.

    Raises:
        _NoLogs: it cannot be reached, or refuses.
    """
    named = args.basic_auth
    pair = basic_auth.credentials(named) if named else basic_auth.credentials_for(args.gateway)
    url = args.gateway.rstrip("/") + "/system/logs"
    timeout_s = (_CONNECT_S, None if args.follow else _SILENT_S)
    try:
        with requests.get(url, query, auth=pair, stream=True, timeout=timeout_s) as answer:
            if answer.status_code != requests.codes.ok:
                raise _NoLogs(_refusal(args.gateway, answer))
            for line in answer.iter_lines(chunk_size=None):
                yield line.decode("utf-8", "replace")
    except requests.RequestException as error:
        message = f"no provider answers at {args.gateway} ({type(error).__name__})"
        message += "; is `carpool up` running, and is --gateway right?"
        raise _NoLogs(message) from error


def _refusal(gateway: str, answer: requests.Response) -> str:
    if answer.status_code == requests.codes.unauthorized:
        return f"{gateway} asks for credentials: name their folder with --basic-auth"
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return f"{gateway} answered {answer.status_code}: {answer.text[:200]}"


def _text(line: dict[str, str]) -> str:
    at = datetime.fromisoformat(line["timestamp"]).astimezone()
    return f"{at:%H:%M:%S} {line['instance']}  {line['text']}\n"
