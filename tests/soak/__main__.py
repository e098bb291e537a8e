"""``python -m tests.soak``: stress a real sidecar, and report what it did not withstand."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from typing import TYPE_CHECKING

import uvloop

from tests.soak.fire import Wanted
from tests.soak.run import soak

if TYPE_CHECKING:
    from tests.soak.run import Report


def main() -> int:
    """Run the soak; return 0 if every expectation was met, otherwise 1."""
    usual = Wanted()
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--requests", type=int, default=usual.requests)
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument(
        "--own-handler", action="store_true", help="the sidecar starts its one handler itself"
    )
    parser.add_argument("--json", action="store_true", help="the whole report, on stdout")
    args = parser.parse_args()
    handlers = 0 if args.own_handler else usual.handlers
    wanted = Wanted(requests=args.requests, seed=args.seed, handlers=handlers)
    report = uvloop.run(soak(wanted, _progress))
    whole = json.dumps(dataclasses.asdict(report), indent=2)
    sys.stdout.write(whole + "\n" if args.json else _table(report))
    return 1 if report.violations else 0


def _progress(line: str) -> None:
    sys.stderr.write(f"\r{line}\033[K" if sys.stderr.isatty() else f"{line}\n")
    sys.stderr.flush()


def _table(report: Report) -> str:
    begin, most = report.memory_mib
    rows = {
        "requests": f"{report.requests} in {report.seconds} s",
        **report.answers,
        "clients left, broke off": f"{report.left}, {report.cut_off}",
        "handlers killed, died": f"{report.kills}, {report.deaths}",
        "plans": report.plans,
        "batches, seen in the ledger": f"{report.batches}, {report.batches_seen}",
        "memory": f"{begin} MiB at first, {most} at most, {report.memory_growth_mib:+.1f} at last",
        "open files": f"{report.open_files_growth:+d}",
        "exit code after SIGTERM": report.exit_code,
        "violations": report.violations,
    }
    lines = [f"{name:28} {value}" for name, value in rows.items()]
    return "\n".join([*lines, *(f"  {text}" for text in report.violated), ""])


if __name__ == "__main__":
    sys.exit(main())
