"""One server under one case: tune its waiting time, find its highest rate, look at half of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.launch import DidNotStart, Running, free_port
from benchmarks.probe import Probe, send
from benchmarks.search import highest_rate
from benchmarks.servers.recipe import APPS, Setup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.cases import Case
    from benchmarks.servers.recipe import Server

__all__ = ["WAITS_MS", "Contest", "Outcome", "ceiling"]

WAITS_MS = (0.0, 1.0, 2.0, 5.0)

_WARMUP_S = 0.5
_TUNING_RESOLUTION = 0.2
_REQUESTS = 40  # at low rates a probe lasts long enough for about so many
_LONGEST_S = 8.0
_HALF_SPAN = 2.0  # the look at half the rate lasts longer than a probe
_NEARLY = 0.9


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one search and the look at half its rate found.

    Attributes:
        max_rps: highest rate sustained within the objective.
        top: the probe at that rate.
        half: the probe at half of it.
        cpu_s_per_1000: of all the server's processes, during ``half``.
        mean_batch: during ``half``; None where unknown.
        mean_batch_top: at the highest rate.
    """

    max_rps: float
    top: Probe
    half: Probe
    cpu_s_per_1000: float
    memory_mb: float
    mean_batch: float | None
    mean_batch_top: float | None


@dataclass(slots=True)
class Contest:
    """Measures one server under one case.

    Attributes:
        span_s: how long one probe lasts.
        resolution: of the search.
    """

    server: Server
    case: Case
    python: Path
    span_s: float
    resolution: float
    wait_ms: float = 0.0
    seed: int = 0

    def tune(self, waits_ms: tuple[float, ...] = WAITS_MS) -> dict[float, float]:
        """The highest rate by waiting time; the best becomes this contest's."""
        found: dict[float, float] = {}
        for wait_ms in waits_ms:
            self.wait_ms = wait_ms
            with self._running() as running:
                start_rps = max(found.values(), default=self.case.start_rps)
                found[wait_ms] = self._search(running, start_rps, _TUNING_RESOLUTION)[0]
        self.wait_ms = max(found, key=lambda wait_ms: found[wait_ms])
        return found

    def measure(self, start_rps: float) -> Outcome:
        """Search, then look at half the rate found.

        Raises:
            DidNotStart: it did not start, or sustained nothing.
        """
        with self._running() as running:
            max_rps, top, batch_top = self._search(running, start_rps, self.resolution)
            if top is None:
                msg = f"it sustains no rate within {self.case.slo_s:g} s"
                raise DidNotStart(msg)
            before, batches = running.used, running.batches()
            half = self._probe(running, max_rps / 2, _HALF_SPAN)
            after = running.used
            sent = half.requests * (1 + _WARMUP_S / self._span(max_rps / 2, _HALF_SPAN))
            return Outcome(
                max_rps=round(max_rps, 2),
                top=top,
                half=half,
                cpu_s_per_1000=round(1e3 * (after.cpu_s - before.cpu_s) / max(1.0, sent), 4),
                memory_mb=round(after.rss_mb, 1),
                mean_batch=_mean(batches, running.batches()),
                mean_batch_top=batch_top,
            )

    def _search(
        self, running: Running, start_rps: float, resolution: float
    ) -> tuple[float, Probe | None, float | None]:
        best: list[tuple[Probe, float | None]] = []

        def sustained(rate_rps: float) -> bool:
            for probe, mean_batch in self._attempts(running, rate_rps):
                if probe.sustained(self.case.slo_s):
                    best.append((probe, mean_batch))
                    return True
                running.settle()
            return False

        rate = highest_rate(sustained, start_rps, resolution=resolution)
        top, mean_batch = best[-1] if best else (None, None)
        return rate, top, mean_batch

    def _attempts(self, running: Running, rate_rps: float) -> Iterator[tuple[Probe, float | None]]:
        """One probe, and a second one where the first was a near miss: the machine hiccups."""
        for _ in range(2):
            batches = running.batches()
            probe = self._probe(running, rate_rps)
            yield probe, _mean(batches, running.batches())
            if probe.achieved < _NEARLY:
                return

    def _probe(self, running: Running, rate_rps: float, times: float = 1.0) -> Probe:
        self.seed += 1
        return send(
            running.requests,
            running.port,
            rate_rps,
            span_s=self._span(rate_rps, times),
            warmup_s=_WARMUP_S,
            seed=self.seed,
        )

    def _span(self, rate_rps: float, times: float = 1.0) -> float:
        return max(self.span_s * times, min(_LONGEST_S, _REQUESTS / rate_rps))

    def _running(self) -> _Scratch:
        return _Scratch(self)


class _Scratch:
    """A running server in a folder of its own, which goes with it."""

    def __init__(self, contest: Contest) -> None:
        self._contest = contest
        self._folder = tempfile.TemporaryDirectory(prefix="carpool-bench-")
        self._running: Running | None = None

    def __enter__(self) -> Running:
        contest = self._contest
        setup = Setup(
            contest.case,
            free_port(),
            contest.python.absolute(),
            Path(self._folder.name),
            contest.wait_ms,
        )
        self._running = Running(contest.server, setup)
        try:
            return self._running.__enter__()
        except BaseException:
            self._folder.cleanup()
            raise

    def __exit__(self, *_: object) -> None:
        if self._running:
            self._running.__exit__()
        self._folder.cleanup()


def ceiling(case: Case, span_s: float) -> dict[str, float]:
    """Rows a second of ONNX Runtime alone, one thread, by batch size."""
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


def _mean(before: tuple[float, float] | None, after: tuple[float, float] | None) -> float | None:
    if before is None or after is None or after[0] <= before[0]:
        return None
    return round((after[1] - before[1]) / (after[0] - before[0]), 2)
