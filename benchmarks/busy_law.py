"""Predicted against played-through latencies of batches that wait: ``... -m benchmarks busy-law``.

Batches of several sizes and windows share one instance, or several, at loads up to nine tenths,
under Poisson arrivals and MMPPs whose phases are shorter or longer than an execution. The load is
the part of the time for which instances would be busy in the busiest phase if every batch had one
at once. Each point is played through in independent
runs, by the batcher's rule (`tests.scaler.batch_starts`); its half-width is that of the 95 %
confidence interval of their mean. Runs are added until it is below ``--width`` of the quantile.
Beside it, what `scaler.policies.batch.busy_law` says, and what was said before: the law for
instances enough, delayed by Erlang's C.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.batch_cases import SHARES, Stratified
from carpool.arrivals.markov import mmpp2
from carpool.arrivals.processes import Poisson, timestamps
from scaler.policies.batch.batch_law import BatchLaw, Service
from scaler.policies.batch.queueing import LimitedInstances
from tests.scaler.batch_starts import latencies

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.arrivals.map_counts import Markovian
    from carpool.arrivals.processes import Times

__all__ = ["main"]

LOADS = (0.3, 0.5, 0.7, 0.8, 0.9)
BASE_S, RATE_RPS = 0.04, 60.0
SHAPES = ((1, 0.0), (4, 0.05), (8, 0.1), (16, 0.2), (32, 0.5))  # size and window
RATIO = 4.0  # of the rates of an MMPP's phases
SWITCHES = {"Poisson": 0.0, "MMPP 0.2 s": 5.0, "MMPP 5 s": 0.2}  # phases last so long
_MIN_RUNS, _MOST_RUNS = 8, 200


@dataclass(frozen=True, slots=True)
class Case:
    """One choice under one load.

    Attributes:
        arrivals: One of `SWITCHES`.
        size, window_s, per_item_s: Batch size, window, and execution time that each request adds
            to `BASE_S`.
        instances, load: Number of instances, and their utilization in the busiest phase.
    """

    arrivals: str
    size: int
    window_s: float
    per_item_s: float
    instances: int
    load: float

    @property
    def rates(self) -> tuple[float, float]:
        """Requests per second in both phases."""
        rate = RATE_RPS * self.instances
        return (rate / RATIO, rate) if SWITCHES[self.arrivals] else (rate, rate)

    @property
    def process(self) -> Markovian:
        """The arrival process."""
        switch = SWITCHES[self.arrivals]
        return mmpp2(self.rates, (switch, switch)) if switch else Poisson(self.rates[1])

    @property
    def seconds(self) -> list[float]:
        """Execution times by batch size."""
        return [BASE_S + self.per_item_s * number for number in range(1, self.size + 1)]


def cases(instances: tuple[int, ...]) -> Iterator[Case]:
    """Yield all cases, with the time per request chosen to give the load."""
    for arrivals in SWITCHES:
        for count in instances:
            for size, window_s in SHAPES:
                for load in LOADS:
                    if case := _loaded(arrivals, size, window_s, count, load):
                        yield case


def _loaded(arrivals: str, size: int, window_s: float, instances: int, load: float) -> Case | None:
    rate = RATE_RPS * instances
    law = BatchLaw(Poisson(rate), size, window_s)
    exec_s = load * instances * law.mean_size / rate
    per_item_s = (exec_s - BASE_S) / law.mean_size
    if per_item_s < 0:  # the base alone is more
        return None
    return Case(arrivals, size, window_s, per_item_s, instances, load)


@dataclass(frozen=True, slots=True)
class Row:
    """A case with its quantiles in ms, by `SHARES`."""

    case: Case
    played: tuple[float, ...]
    half_width: tuple[float, ...]
    law: tuple[float, ...]
    before: tuple[float, ...]
    requests: int
    law_ms: float


def played(case: Case, requests: int, width: float) -> tuple[Times, Times, int]:
    """Return the mean quantiles in ms, their intervals' half-widths, and the number of requests."""
    runs: list[Times] = []
    half = np.full(len(SHARES), math.inf)
    while len(runs) < _MOST_RUNS and (len(runs) < _MIN_RUNS or (half > width).any()):
        arrivals = _arrivals(case, requests, len(runs) + 1)
        latencies_s = latencies(arrivals, case.size, case.window_s, case.seconds, case.instances)
        warm = latencies_s[len(latencies_s) // 20 :]
        runs.append(1000 * np.quantile(warm, SHARES))
        if len(runs) >= _MIN_RUNS:
            table = np.array(runs)
            error = table.std(axis=0, ddof=1) / math.sqrt(len(runs))
            half = 2.0 * error / table.mean(axis=0)
    mean = np.mean(runs, axis=0)
    return mean, half * mean, requests * len(runs)


def _arrivals(case: Case, requests: int, seed: int) -> Times:
    switch = SWITCHES[case.arrivals]
    if switch:
        path = Stratified(case.rates, (switch, switch), requests, seed)
        (times,) = path.chunks(path.until_s, seed)
        return times
    return timestamps(case.process, requests / case.process.mean_rate, seed)


def row(case: Case, requests: int, width: float) -> Row:
    """Simulate a case, and compute the same quantiles by both laws."""
    service = Service.fixed(case.seconds)
    law = BatchLaw(case.process, case.size, case.window_s)
    crowd = LimitedInstances(case.process, law, service)
    began = time.process_time()
    expected = crowd.law(case.instances)
    assert expected is not None
    said = expected.quantiles(SHARES)
    law_ms = 1000 * (time.process_time() - began)
    before = law.quantiles(SHARES, crowd.delayed(case.instances))
    mean, half, count = played(case, requests, width)
    return Row(
        case,
        tuple(mean.tolist()),
        tuple(half.tolist()),
        tuple((1000 * said).tolist()),
        tuple((1000 * before).tolist()),
        count,
        law_ms,
    )


def main(argv: list[str]) -> int:
    """Print every point; return 1 if the law's error exceeds what is allowed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks busy-law", description=__doc__)
    add = parser.add_argument
    add("--requests", type=int, default=200_000, help="in each run (200000)")
    add("--width", type=float, default=0.002, help="of a confidence interval's half (0.002)")
    add("--allowed", type=float, default=0.01, help="relative error (0.01)")
    add("--instances", type=int, action="append", metavar="N", help="(1)")
    add("--arrivals", action="append", choices=list(SWITCHES), help="(all)")
    add("--json", action="store_true", help="a row of JSON a line")
    flags = parser.parse_args(argv)
    heads = "".join(f"{f'P{100 * at:g} ms':>10}{'+-':>7}{'law':>8}{'was':>8}" for at in SHARES)
    if not flags.json:
        print(f"{'arrivals':<11}{'n':>3}{'B':>4}{'T ms':>6}{'load':>6}{heads}{'law ms':>8}")
    worst = 0.0
    for case in cases(tuple(flags.instances or (1,))):
        if flags.arrivals and case.arrivals not in flags.arrivals:
            continue
        result = row(case, flags.requests, flags.width)
        worst = max([worst, *map(abs, _errors(result, result.law))])
        print(json.dumps(asdict(result)) if flags.json else _line(result), flush=True)
    if not flags.json:
        print(f"largest error {100 * worst:.2f} %")
    return 1 if worst > flags.allowed else 0


def _line(found: Row) -> str:
    case = found.case
    cells = "".join(
        f"{at:10.1f}{100 * half / at:6.2f}%{100 * law:+7.2f}%{100 * was:+7.1f}%"
        for at, half, law, was in zip(
            found.played,
            found.half_width,
            _errors(found, found.law),
            _errors(found, found.before),
            strict=True,
        )
    )
    shape = f"{case.instances:>3}{case.size:>4}{1000 * case.window_s:>6g}{case.load:>6g}"
    return f"{case.arrivals:<11}{shape}{cells}{found.law_ms:8.1f}"


def _errors(found: Row, said: tuple[float, ...]) -> list[float]:
    return [guess / seen - 1 for guess, seen in zip(said, found.played, strict=True)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
