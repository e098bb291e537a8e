"""Measure one server in one case: tune its waiting time, find its highest rate, look closer."""

from __future__ import annotations

import contextlib
import math
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import poison
from benchmarks.launch import DidNotStart, Running, free_port
from benchmarks.probe import Load, Probe, send
from benchmarks.servers.recipe import Setup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.cases import Case
    from benchmarks.poison import Neighbours
    from benchmarks.servers.recipe import Server

__all__ = ["Closer", "Contest", "Found", "Repeat"]

# A coarse search, for the waiting time and for where the search proper begins.
_COARSE_RESOLUTION, _COARSE_SPAN = 0.2, 0.5
_REQUESTS = 40  # at low rates a probe lasts long enough for about so many
_LONGEST_S = 8.0
_CLOSER_SPAN = 2.0  # a closer look lasts so many times longer than a probe
_NEARLY = 0.9
_OVERLOAD = 2.0
# Under overload a waiting request needs a connection: fewer would hide the queue in the client. A
# request that finds none within a tenth of the objective is not sent, as in `flood`: a queue of the
# client would make all that follow late, however well the server chooses.
# Opening them floods a server's backlog, and what is dropped there comes back after a second.
_CONNECTIONS = range(1024, 4000)
_OPENING_S = 2.0

# Factors between probes until the rate is bracketed: of a coarse search, and of the search proper.
_WIDE, _NARROW = 1.6, 1.15
_LOWEST_RPS = 0.5
_HIGHEST_RPS = 200_000.0


def _highest_rate(
    sustained: Callable[[float], bool],
    start_rps: float,
    *,
    step: float = _WIDE,
    resolution: float = 0.05,
) -> float:
    """Return the highest rate found for which ``sustained`` is true, or 0 if there is none.

    Geometric steps until the rate is bracketed, then bisection.

    Args:
        sustained: probes one rate.
        start_rps: first guess.
        step: factor between rates until one is sustained and one is not.
        resolution: relative distance at which the search between the two stops.
    """
    good, bad = 0.0, math.inf
    rate = start_rps
    while not (good and bad < math.inf):
        if sustained(rate):
            good, rate = rate, rate * step
        else:
            bad, rate = rate, rate / step
        if not _LOWEST_RPS <= rate <= _HIGHEST_RPS:
            return good
    while bad / good > 1 + resolution:
        rate = math.sqrt(good * bad)
        if sustained(rate):
            good = rate
        else:
            bad = rate
    return good


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search.

    Attributes:
        max_rps: highest rate sustained within the objective; 0 if none is.
        mean_batch: at that rate; None if unknown.
        probes: all probes sent, in order.
    """

    max_rps: float
    mean_batch: float | None
    probes: list[Probe]


@dataclass(frozen=True, slots=True)
class Closer:
    """Further measurements besides the highest rate.

    Attributes:
        half: the probe at half of the highest rate.
        cpu_s_per_1000: CPU time of all the server's processes during ``half``.
        memory_mb: their memory after ``half``.
        mean_batch: during ``half``; None if unknown.
        neighbours: effect of a bad request on others; None if requests are not batched.
        overload: the probe at twice the highest rate.
        recovered_s: time after it until a burst got all its responses again; None if that took
            too long.
    """

    half: Probe
    cpu_s_per_1000: float
    memory_mb: float
    mean_batch: float | None
    neighbours: Neighbours | None
    overload: Probe
    recovered_s: float | None


@dataclass(frozen=True, slots=True)
class Repeat:
    """Results of one repeat."""

    found: Found
    closer: Closer | None


@dataclass(slots=True)
class Contest:
    """Measures one server in one case.

    Attributes:
        span_s: duration of one probe.
        resolution: of the search.
        wait_ms: the waiting time the server is started with.
        near_rps: approximate highest rate; 0 if unknown.
        seed: seed of the next probe's arrivals.
    """

    server: Server
    case: Case
    python: Path
    span_s: float
    resolution: float
    wait_ms: float = 0.0
    near_rps: float = 0.0
    seed: int = 0

    def tune(self, wait_ms: float) -> Found:
        """Make a coarse search with ``wait_ms``."""
        self.wait_ms = wait_ms
        with self._running() as running:
            return self._coarse(running)

    def measure(self, *, closer: bool) -> Repeat:
        """Search for the highest rate and, if ``closer``, look closer.

        Raises:
            DidNotStart: the server did not start, or sustained no rate.
        """
        with self._running() as running:
            capacity = self._find(running)
            if not capacity.max_rps:
                msg = f"it sustains no rate within {self.case.slo_s:g} s"
                raise DidNotStart(msg)
            return Repeat(
                capacity, self._look_closer(running, capacity.max_rps) if closer else None
            )

    def _look_closer(self, running: Running, max_rps: float) -> Closer:
        before, batches = running.used, running.batches()
        load = self._load(max_rps / 2, _CLOSER_SPAN)
        half = send(running.requests, running.port, load)
        after, mean_batch = running.used, running.mean_batch(batches)
        sent = max(1.0, half.requests * (1 + load.warmup_s / load.span_s))
        neighbours = poison.visit(running, self.case) if self.server.batches else None
        running.settle()
        overload = self._flood(running, max_rps * _OVERLOAD)
        return Closer(
            half=half,
            cpu_s_per_1000=round(1e3 * (after.cpu_s - before.cpu_s) / sent, 4),
            memory_mb=round(after.rss_mb, 1),
            mean_batch=mean_batch,
            neighbours=neighbours,
            overload=overload,
            recovered_s=poison.all_right_after_s(running, self.case),
        )

    def _flood(self, running: Running, rate_rps: float) -> Probe:
        in_time = math.ceil(rate_rps * self.case.slo_s)
        load = self._load(rate_rps, _CLOSER_SPAN)
        load.connections = min(max(in_time, _CONNECTIONS.start), _CONNECTIONS.stop)
        load.warmup_s, load.patience_s = _OPENING_S, self.case.slo_s / 10
        return send(running.requests, running.port, load)

    def _find(self, running: Running) -> Found:
        """Search for the highest rate, coarsely first if it is not known approximately."""
        before: list[Probe] = []
        if not self.near_rps:
            coarse = self._coarse(running)
            if not coarse.max_rps:
                return coarse
            self.near_rps, before = coarse.max_rps, coarse.probes
        found = self._search(running, _NARROW, self.resolution)
        return replace(found, probes=before + found.probes)

    def _coarse(self, running: Running) -> Found:
        return self._search(running, _WIDE, _COARSE_RESOLUTION, _COARSE_SPAN)

    def _search(
        self, running: Running, step: float, resolution: float, times: float = 1.0
    ) -> Found:
        probes: list[Probe] = []
        batches: list[float | None] = []

        def sustained(rate_rps: float) -> bool:
            for probe, mean_batch in self._attempts(running, rate_rps, times):
                probes.append(probe)
                if probe.sustained(self.case.slo_s):
                    batches.append(mean_batch)
                    return True
                running.settle()
            return False

        start_rps = self.near_rps or self.case.start_rps * self.server.start_share
        rate_rps = _highest_rate(sustained, start_rps, step=step, resolution=resolution)
        return Found(round(rate_rps, 2), batches[-1] if batches else None, probes)

    def _attempts(
        self, running: Running, rate_rps: float, times: float
    ) -> Iterator[tuple[Probe, float | None]]:
        """Yield one probe, and a second if the first was a near miss, as the machine may hiccup."""
        for _ in range(2):
            batches = running.batches()
            probe = send(running.requests, running.port, self._load(rate_rps, times))
            yield probe, running.mean_batch(batches)
            if probe.achieved < _NEARLY:
                return

    def _load(self, rate_rps: float, times: float = 1.0) -> Load:
        self.seed += 1
        span_s = max(self.span_s * times, min(_LONGEST_S, _REQUESTS / rate_rps))
        return Load(rate_rps, span_s, self.case.slo_s, self.seed)

    @contextlib.contextmanager
    def _running(self) -> Iterator[Running]:
        """Run the server in its own temporary folder within the context."""
        with tempfile.TemporaryDirectory(
            prefix="carpool-bench-", ignore_cleanup_errors=True
        ) as folder:
            setup = Setup(
                self.case, free_port(), self.python.absolute(), Path(folder), self.wait_ms
            )
            with Running(self.server, setup) as running:
                yield running
