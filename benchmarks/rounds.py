"""Run a comparison: prepare and tune all servers, then measure each in every round.

What the records already contain is not measured again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import venvs
from benchmarks.contest import Contest
from benchmarks.launch import DidNotStart
from benchmarks.servers.recipe import APPS, Setup

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.cases import Case
    from benchmarks.contest import Repeat
    from benchmarks.records import Records
    from benchmarks.servers.recipe import Server

__all__ = ["Course"]


@dataclass(slots=True)
class Course:
    """One comparison.

    Attributes:
        repeats: number of rounds.
        closer: number of rounds that measure more than the highest rate.
        tuning: whether to try out waiting times.
        budget_s: except for the first, no round is begun that would end later than this after the
            start.
        after_round: called after tuning and after each round.
    """

    records: Records
    cases: list[Case]
    servers: list[Server]
    span_s: float
    resolution: float
    repeats: int
    closer: int
    tuning: bool
    budget_s: float
    after_round: Callable[[], None]
    _contests: dict[str, dict[str, Contest]] = field(default_factory=dict)

    def run(self) -> None:
        """Prepare all servers, then measure round by round."""
        start_s = time.monotonic()
        for case in self.cases:
            about = {"slo_s": case.slo_s, "batch_max": case.batch_max, "burst": case.burst}
            self.records.add("case", name=case.name, **about)
            self._contests[case.name] = {}
            for server in self.servers:
                self._prepare(case, server)
        self.after_round()
        longest_s: dict[bool, float] = {}  # of the rounds that look closer, and of the others
        for repeat in range(self.repeats):
            round_s, closer = time.monotonic(), repeat < self.closer
            expected_s = longest_s.get(closer) or max(longest_s.values(), default=0.0)
            if expected_s and round_s - start_s + expected_s > self.budget_s:
                _say(f"another round of {expected_s:.0f} s would exceed the budget")
                return
            measured = [self._round(case, repeat) for case in self.cases]
            if any(measured):
                longest_s[closer] = max(longest_s.get(closer, 0.0), time.monotonic() - round_s)
            self.after_round()

    def _prepare(self, case: Case, server: Server) -> None:
        """Install and tune a server, or record why it cannot take part."""
        reason = server.refuses(case)
        if not reason:
            try:
                python = venvs.prepared(server)
                made_of = venvs.versions(server, python)
                self.records.add("server", name=server.name, parses=server.parses, versions=made_of)
                contest = Contest(server, case, python, self.span_s, self.resolution)
                self._tune(contest)
            except (venvs.NotInstalled, DidNotStart) as error:
                reason = str(error)
            else:
                self._contests[case.name][server.name] = contest
                return
        self.records.add("skipped", case=case.name, server=server.name, why=reason)
        _say(f"{case.name} {server.name}: skipped, {reason}")

    def _tune(self, contest: Contest) -> None:
        """Set the contest's best waiting time and approximate highest rate."""
        of = {"case": contest.case.name, "server": contest.server.name}
        waits_ms = contest.server.waits_ms(contest.case)
        for wait_ms in waits_ms if self.tuning and len(waits_ms) > 1 else ():
            if not self.records.find("tuning", **of, wait_ms=wait_ms):
                capacity = contest.tune(wait_ms)
                contest.near_rps = max(contest.near_rps, capacity.max_rps)
                self.records.add("tuning", **of, wait_ms=wait_ms, **asdict(capacity))
                _say(
                    f"{of['case']} {of['server']}: {capacity.max_rps:.0f}/s waiting {wait_ms:g} ms"
                )
        tried = [t for t in self.records.find("tuning", **of) if t["wait_ms"] in waits_ms]
        best = max(tried, key=lambda t: t["max_rps"], default=None)
        contest.wait_ms = best["wait_ms"] if best else (waits_ms or (0.0,))[0]
        contest.near_rps = best["max_rps"] if best else 0.0

    def _round(self, case: Case, repeat: int) -> bool:
        """Measure missing servers, starting with another each round; return False if none is."""
        names = list(self._contests[case.name])
        first = repeat % max(1, len(names))
        have = {p["server"] for p in self.records.find("point", case=case.name, repeat=repeat)}
        missing = [name for name in names[first:] + names[:first] if name not in have]
        if missing and not self.records.find("ceiling", case=case.name, repeat=repeat):
            rows_rps = _ceiling(case, self.span_s)
            self.records.add("ceiling", case=case.name, repeat=repeat, rows_rps=rows_rps)
            _say(f"{case.name} ceiling {rows_rps}")
        for name in missing:
            self._turn(self._contests[case.name][name], repeat)
        return bool(missing)

    def _turn(self, contest: Contest, repeat: int) -> None:
        case, server = contest.case.name, contest.server.name
        last = self.records.last("point", case=case, server=server, error=None)
        contest.near_rps = last["found"]["max_rps"] if last else contest.near_rps
        contest.seed = 1000 * repeat
        start_s = time.monotonic()
        point = {"case": case, "server": server, "repeat": repeat, "wait_ms": contest.wait_ms}
        try:
            outcome = contest.measure(closer=repeat < self.closer)
        except DidNotStart as error:
            self.records.add("point", **point, error=str(error), found=None, closer=None)
            _say(f"{case} {server}: no result, {error}")
            return
        self.records.add("point", **point, error=None, **asdict(outcome))
        _say(f"{case} {server}: {_in_words(outcome)} ({time.monotonic() - start_s:.0f} s)")


def _in_words(repeat: Repeat) -> str:
    found, closer = repeat.found, repeat.closer
    words = f"{found.max_rps:.0f}/s in batches of {found.mean_batch}"
    if not closer:
        return words
    harm = closer.neighbours.harm if closer.neighbours else {}
    right = " ".join(f"{each.median:g} ({each.worst})" for each in harm.values())
    over = closer.overload
    return (
        f"{words}; half: p99 {closer.half.p99_ms} ms, {closer.cpu_s_per_1000:.3f} CPU s per 1000;"
        f" twice: {over.in_time:.0%} in time, {over.refused:.0%} refused, p99 {over.p99_ms} ms;"
        f" neighbours right: {right or '-'}"
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _ceiling(case: Case, span_s: float) -> dict[str, float]:
    """Return the rows per second of ONNX Runtime alone on one thread, by batch size."""
    sizes = sorted({1, case.batch_max, 32} if case.batch_max > 1 else {1})
    with tempfile.TemporaryDirectory(prefix="carpool-bench-") as folder:
        setup = Setup(case, 0, Path(sys.executable), Path(folder), 0.0)
        done = subprocess.run(
            [sys.executable, str(APPS / "ceiling.py"), *map(str, sizes)],
            env={**os.environ, **setup.environment(), "BENCH_SPAN_S": f"{span_s:g}"},
            check=True,
            capture_output=True,
            timeout=60 + 10 * span_s,
        )
    return {size: round(rate, 1) for size, rate in json.loads(done.stdout).items()}
