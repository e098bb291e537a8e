"""``python -m benchmarks servers``: Carpool and other servers, same model, same load, same run."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import report, venvs
from benchmarks.cases import CASES
from benchmarks.contest import Contest, ceiling
from benchmarks.launch import DidNotStart
from benchmarks.servers import SERVERS
from carpool.strict import Problems

if TYPE_CHECKING:
    from benchmarks.cases import Case
    from benchmarks.servers.recipe import Server

__all__ = ["main"]

_RESULTS = Path(__file__).parent / "results"


def main(argv: list[str]) -> int:
    """Measure, and write the results after each repeat; 1 if no server could be measured."""
    flags = _flags(argv)
    results: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks servers", *argv]),
        "machine": report.machine(),
        "settings": {
            "repeats": flags.repeats,
            "span_s": flags.span,
            "resolution": flags.resolution,
        },
        "servers": {},
        "cases": {},
    }
    servers = [SERVERS[name] for name in flags.server]
    for name in flags.case:
        _run_case(CASES[name], servers, flags, results)
    return 0 if any(case["repeats"] for case in results["cases"].values()) else 1


def _run_case(
    case: Case, servers: list[Server], flags: argparse.Namespace, results: dict[str, Any]
) -> None:
    found: dict[str, Any] = {
        "slo_ms": 1e3 * case.slo_s,
        "batch_max": case.batch_max,
        "ceiling": [],
        "tuning": {},
        "skipped": {},
        "repeats": [],
    }
    results["cases"][case.name] = found
    contests = {}
    for server in servers:
        if contest := _prepared(case, server, flags, results):
            contests[server.name] = contest
    starts: dict[str, float] = {}
    for repeat in range(flags.repeats):
        found["ceiling"].append(ceiling(case, flags.span))
        _say(f"{case.name} ceiling {found['ceiling'][-1]}")
        names = list(contests)
        turn = repeat % max(1, len(names))
        for name in names[turn:] + names[:turn]:
            _repeat(contests[name], repeat, starts, found)
        _write(results, flags.out)


def _prepared(
    case: Case, server: Server, flags: argparse.Namespace, results: dict[str, Any]
) -> Contest | None:
    """The server installed and tuned; None if it is skipped, with the reason in the results."""
    found = results["cases"][case.name]
    reason = server.refuses(case)
    if not reason:
        try:
            python = venvs.prepared(server)
            contest = Contest(server, case, python, flags.span, flags.resolution)
            made_of = venvs.versions(server, python)
            results["servers"][server.name] = {"parses": server.parses, "versions": made_of}
            if server.batches and not flags.no_tuning:
                rates = contest.tune()
                found["tuning"][server.name] = {f"{wait:g}": rate for wait, rate in rates.items()}
                _say(f"{case.name} {server.name}: rate by waiting time in ms: {rates}")
        except (venvs.NotInstalled, DidNotStart) as error:
            reason = str(error)
        else:
            return contest
    found["skipped"][server.name] = reason
    _say(f"{case.name} {server.name}: skipped, {reason}")
    return None


def _repeat(contest: Contest, repeat: int, starts: dict[str, float], found: dict[str, Any]) -> None:
    name = contest.server.name
    start_s = time.monotonic()
    try:
        outcome = contest.measure(starts.get(name, contest.case.start_rps))
    except DidNotStart as error:
        found["skipped"][name] = str(error)
        _say(f"{contest.case.name} {name}: no result, {error}")
        return
    starts[name] = outcome.max_rps
    record = {"server": name, "repeat": repeat, "wait_ms": contest.wait_ms, **asdict(outcome)}
    found["repeats"].append(record)
    took_s = time.monotonic() - start_s
    _say(
        f"{contest.case.name} {name}: {outcome.max_rps:.0f}/s, p99 at half of it"
        f" {outcome.half.p99_ms:.1f} ms, {outcome.cpu_s_per_1000:.3f} CPU s per 1000,"
        f" {outcome.memory_mb:.0f} MB, batch {outcome.mean_batch_top} ({took_s:.0f} s)"
    )


def _write(results: dict[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    path.with_suffix(".md").write_text(report.markdown(results))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _flags(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks servers", description=__doc__)
    add = parser.add_argument
    add("--server", default=",".join(SERVERS), help="names, separated by commas (all)")
    add("--case", default=",".join(CASES), help="names, separated by commas (all)")
    add("--repeats", type=int, default=5, help="interleaved repeats (5)")
    add("--span", type=float, default=2.0, metavar="SECONDS", help="of one probe (2)")
    add("--resolution", type=float, default=0.04, help="of the search for the highest rate (0.04)")
    add("--no-tuning", action="store_true", help="leave every waiting time at 0")
    add("--out", type=Path, default=_RESULTS / "servers.json", help="a .md goes beside it")
    flags = parser.parse_args(argv)
    problems = Problems()
    flags.server = _names(problems, "--server", flags.server, list(SERVERS))
    flags.case = _names(problems, "--case", flags.case, list(CASES))
    problems.raise_if_any()
    return flags


def _names(problems: Problems, flag: str, text: str, known: list[str]) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            problems.unknown(flag, known, name)
    return names
