"""``carpool scaler``: run a scaler, or ask one that runs how it goes and why.

run                    until it is interrupted (`scaler.run_command`)
status                 every function in a line
explain FUNCTION       its plan, the latest decisions, problems
versions FUNCTION      a function and its canaries, side by side
shadow                 what the policy of --shadow would have run, beside what was run
export, import FILE    the store as JSON
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import requests

from carpool.direct_session import direct_session
from carpool.errors import CarpoolError, ConfigError, Problem
from carpool.plan import Plan
from carpool.validation import rules
from carpool.validation.problems import Problems
from carpool.validation.text_file import read_text
from scaler import run_command
from scaler.plan_command import plan_lines
from scaler.stack_folder import STORE_FILE, TOKEN_FILE, URL_FILE
from scaler.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["main"]

_TIMEOUT_S = 10.0
_URL = "http://127.0.0.1:8090"
_STORE = Path("scaler.db")
_LATEST = 20
_NEWER = 10**17  # than any sample


class _ScalerError(CarpoolError):
    """Raised when the scaler cannot be reached, or has no answer."""


def main(argv: list[str]) -> int:
    """Run ``carpool scaler``.

    Raises:
        ConfigError: Options or a store cannot be used.
    """
    parser = argparse.ArgumentParser(
        prog="carpool scaler", description="Run a scaler, or query a running one."
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    run_command.add_flags(_verb(verbs, "run", "run a scaler", run_command.run))
    _asking(_verb(verbs, "status", "print a line per function", _status))
    explain = _asking(
        _verb(verbs, "explain", "print a function's plan and the reasons for it", _explain)
    )
    explain.add_argument("function", help="its name")
    versions = _asking(_verb(verbs, "versions", "compare a function with its canaries", _versions))
    versions.add_argument("function", help="the name of the function whose calls are divided")
    _asking(_verb(verbs, "shadow", "print what the shadow policy would have run", _shadow))
    for name, about, call in (
        ("export", "print the scaler's persistent state as JSON", _export),
        ("import", "restore what export printed", _import),
    ):
        verb = _verb(verbs, name, about, call)
        expected = f"(default: that of carpool up in this folder, or {_STORE})"
        verb.add_argument(
            "--store", type=Path, metavar="FILE", help=f"the scaler's state database {expected}"
        )
        if name == "import":
            verb.add_argument("file", type=Path, help="file that carpool scaler export printed")
    args = parser.parse_args(argv)
    return int(args.call(args))


def _verb(
    verbs: Any,  # noqa: ANN401  argparse does not name its type
    name: str,
    about: str,
    call: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=about, description=f"{about[:1].upper()}{about[1:]}."
    )
    parser.set_defaults(call=call)
    return parser


def _asking(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    add = parser.add_argument
    add("--url", help=f"URL of the scaler (default: that of carpool up in this folder, or {_URL})")
    expected = f"(default: {TOKEN_FILE}, where there is one)"
    add("--token-file", type=Path, metavar="FILE", help=f"file with the token {expected}")
    add("--json", action="store_true", help="print JSON")
    return parser


def _asked(args: argparse.Namespace, path: str, key: str) -> dict[str, Any]:
    """Return the scaler's answer, which has ``key`` if it is a scaler's."""
    token_file = args.token_file or (TOKEN_FILE if TOKEN_FILE.exists() else None)
    problems = Problems()
    token = (read_text(token_file, problems) or "").strip() if token_file else ""
    if args.url and not args.url.startswith(("http://", "https://")):
        problems.add("--url", args.url, f"an URL with its scheme, such as {_URL}")
    problems.raise_if_any()
    headers = {"authorization": f"Bearer {token}"} if token else {}
    of_stack = not args.url and URL_FILE.exists()
    url = args.url or (URL_FILE.read_text().strip() if of_stack else _URL)
    try:
        with direct_session() as session:
            answer = session.get(url.rstrip("/") + path, headers=headers, timeout=_TIMEOUT_S)
        document = answer.json()
    except (requests.RequestException, ValueError) as error:
        message = f"no scaler answers at {url} ({type(error).__name__}); set its URL with --url"
        if of_stack:
            message = (
                "carpool up is no longer running in this folder: start it again, or use --url "
                f"({message})"
            )
        raise _ScalerError(message) from error
    if not isinstance(document, dict):
        document = {}
    if answer.status_code != requests.codes.ok:
        raise _ScalerError(str(document.get("error", answer.status_code)))
    if key not in document:
        message = f"{url} is not a scaler: expected `{key}` in its answer to {path}"
        raise _ScalerError(message)
    return document


def _status(args: argparse.Namespace) -> int:
    status = _asked(args, "/v1/functions", "functions")
    notes = [f"{line['name']}: {note}" for line in status["functions"] for note in line["notes"]]
    wrong = int(bool(notes or status["trouble"]))
    if args.json:
        _print_json(status)
        return wrong
    rows = [("FUNCTION", "POLICY", "RATE", "QUEUED", "PLANNED", "READY", "LOADING")]
    for line in status["functions"]:
        rate = "?" if line["rate_rps"] is None else f"{line['rate_rps']:.1f}/s"
        counts = (str(line[name]) for name in ("queued", "planned", "ready", "loading"))
        rows.append((line["name"], line["policy"] or "-", rate, *counts))
    _print_table(rows)
    for note in [*notes, *filter(None, [status["trouble"]])]:
        sys.stdout.write(f"! {note}\n")
    for sentence in status.get("advice", ()):
        sys.stdout.write(f"{sentence}\n")
    return wrong


def _explain(args: argparse.Namespace) -> int:
    document = _asked(args, f"/v1/functions/{quote(args.function, safe='')}", "plan")
    if args.json:
        return _print_json(document)
    lines = [f"{document['name']}: {document['ready']} ready, {document['loading']} loading"]
    if document["plan"]:
        plan = Plan.from_dict(document["plan"])
        lines += [f"plan {plan.version} of {plan.policy}:", *plan_lines(plan)]
    lines += [f"! {note}" for note in document["notes"]]
    lines += [f"  ({remark})" for remark in document["remarks"]]
    if document["decisions"]:
        lines.append("decided:")
    for decision in document["decisions"][-_LATEST:]:
        at = datetime.fromtimestamp(decision["at_s"]).astimezone()
        lines.append(f"  {at:%H:%M:%S} {decision['text']}")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _versions(args: argparse.Namespace) -> int:
    path = f"/v1/history/{quote(args.function, safe='')}?after={_NEWER}"
    document = _asked(args, path, "comparison")
    comparison = document["comparison"]
    if not comparison:
        message = f"{args.function} has no canaries: its label com.carpool.canary names them"
        raise _ScalerError(message)
    if args.json:
        return _print_json(comparison)
    spent = "cost" if document["priced"] else "core_s"
    head = ("FUNCTION", "SHARE", "REQUESTS", "RATE", "P50", "P95", "P99")
    rows: list[tuple[str, ...]] = [
        (*head, "LATE", "REFUSED", "ERRORS", f"{spent.upper()}/1000"),
    ]
    rows += [_version_row(each, spent) for each in comparison["versions"]]
    _print_table(rows)
    at = datetime.fromtimestamp(comparison["since_s"]).astimezone()
    sys.stdout.write(f"since {at:%Y-%m-%d %H:%M:%S}, when the shares were set or first seen\n")
    return 0


def _version_row(version: Mapping[str, Any], spent: str) -> tuple[str, ...]:
    name, share = version["name"], f"{version['percent']:g}%"
    if not version["measured"]:
        return name, share, "not scaled", *("-" for _ in range(8))
    count = version["requests"]
    times = (version[key] for key in ("p50_s", "p95_s", "p99_s"))
    parts = (version[key] for key in ("late", "refused", "errors"))
    return (
        *(name, share, str(count), f"{version['rate_rps']:.1f}/s"),
        *("-" if time_s is None else f"{time_s * 1000:.3g} ms" for time_s in times),
        *(f"{part / count:.2%}" if count else "-" for part in parts),
        f"{version[spent] / count * 1000:.3g}" if count else "-",
    )


def _shadow(args: argparse.Namespace) -> int:
    shadow = _asked(args, "/v1/shadow", "functions")
    if args.json:
        return _print_json(shadow)
    rows = [("FUNCTION", "POLICY", "CORE-S", "GPU-%S", "COST", "SHORT S")]
    for name, each in shadow["functions"].items():
        for label, used in (("in charge", each["live"]), (shadow["policy"], each["shadow"])):
            amounts = (used[key] for key in ("core_s", "gpu_percent_s", "cost", "short_s"))
            rows.append((name, label, *(f"{amount:.4g}" for amount in amounts)))
    _print_table(rows)
    return 0


def _store_file(args: argparse.Namespace) -> Path:
    named: Path | None = args.store
    return named or (STORE_FILE if STORE_FILE.parent.is_dir() else _STORE)


def _export(args: argparse.Namespace) -> int:
    path = _store_file(args)
    if not path.exists():
        raise ConfigError([Problem("--store", str(path), "an existing store")])
    store = Store(path)
    try:
        return _print_json(store.export())
    finally:
        store.close()


def _import(args: argparse.Namespace) -> int:
    problems = Problems()
    text = read_text(args.file, problems)
    problems.raise_if_any()
    try:
        data = rules.loads(text or "")
    except rules.NotJsonError as error:
        raise ConfigError([Problem(str(args.file), "", "JSON", str(error))]) from error
    store = Store(_store_file(args))
    try:
        store.claim()
        store.restore(data)
    finally:
        store.close()
    return 0


def _print_json(document: object) -> int:
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    return 0


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
