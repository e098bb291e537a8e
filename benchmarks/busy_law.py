"""Predicted against simulated latencies of batches that wait: ``python -m benchmarks busy-law``.

Batches of several sizes and windows share one instance, or several, at loads up to nine tenths,
under Poisson arrivals and MMPPs whose phases are shorter or longer than an execution. The load is
the part of the time for which instances would be busy in the busiest phase if every batch had one
at once. The law was chosen and tuned on the set ``chosen``; ``unseen``, which differs in all rates,
sizes, windows, numbers of instances and phases, played no part in it.

Each point is simulated, by the batcher's rule, in independent runs (`batch_queue`). Its quantile is
that of all their requests, and its half-width that of the 95 % confidence interval by the runs' own
quantiles. Runs are added until it is below ``--width`` of the quantile. Beside it are the errors of
the law of `scaler.policies.batch.queueing`, and of the law for unlimited instances with a delay by
Erlang's C formula. A set takes a few minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.batch_cases import SHARES, stratified_phases
from benchmarks.batch_queue import Batching, Histogram, latency_counts
from carpool.arrivals.markov import mmpp2
from carpool.arrivals.processes import Poisson
from scaler.policies.batch.batch_law import BatchLaw, Service
from scaler.policies.batch.queueing import LimitedInstances

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.arrivals.map_counts import Markovian
    from carpool.arrivals.processes import Times

__all__ = ["main"]

_MIN_RUNS = 16
_STUDENT = 2.13  # half of a 95 % interval of so many runs, in standard errors
_WARM = 50  # a fiftieth of each run is left out
_BINS = 4096  # for the window and an execution together
_DRAWS, _PHASES = 1, 2  # seeds


class Phases(NamedTuple):
    """How the rate of arrivals switches between two values.

    Attributes:
        ratio: Of the higher rate to the lower; 1 for Poisson arrivals.
        mean_s: Mean duration of a phase.
    """

    ratio: float = 1.0
    mean_s: float = math.inf


class CaseSet(NamedTuple):
    """Cases with the same rates: all combinations.

    Attributes:
        arrivals: How the rate switches, by name.
        shapes: Sizes of batches, and windows in seconds.
        instances, loads: Numbers of instances, and their utilization in the busiest phase.
        base_s: Execution time of a batch beyond that of its requests.
        rate_rps: Requests per second and instance in the busiest phase.
    """

    arrivals: dict[str, Phases]
    shapes: tuple[tuple[int, float], ...]
    instances: tuple[int, ...]
    loads: tuple[float, ...]
    base_s: float
    rate_rps: float


SETS = {
    "chosen": CaseSet(
        {"Poisson": Phases(), "MMPP 0.2 s": Phases(4.0, 0.2), "MMPP 5 s": Phases(4.0, 5.0)},
        ((1, 0.0), (4, 0.05), (8, 0.1), (16, 0.2), (32, 0.5)),
        (1, 2, 4),
        (0.3, 0.5, 0.7, 0.8, 0.9),
        base_s=0.04,
        rate_rps=60.0,
    ),
    "unseen": CaseSet(
        {"Poisson": Phases(), "MMPP 1 s": Phases(3.0, 1.0), "MMPP 20 s": Phases(8.0, 20.0)},
        ((1, 0.0), (2, 0.02), (6, 0.08), (12, 0.15), (24, 0.3)),
        (1, 3, 6),
        (0.6, 0.9),
        base_s=0.006,
        rate_rps=90.0,
    ),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One choice under one load.

    Attributes:
        arrivals: Name of the arrivals.
        process: The arrival process.
        rates, switch: Requests per second in both phases, and how often a second each is left;
            None for Poisson arrivals.
        size, window_s: Batch size, and window.
        seconds: Execution times by batch size.
        instances, load: Number of instances, and their utilization in the busiest phase.
    """

    arrivals: str
    process: Markovian
    rates: tuple[float, float]
    switch: float | None
    size: int
    window_s: float
    seconds: tuple[float, ...]
    instances: int
    load: float


def cases(case_set: CaseSet) -> Iterator[Case]:
    """Yield all cases, with the time per request chosen to give the load."""
    for arrivals, phases in case_set.arrivals.items():
        for count in case_set.instances:
            for size, window_s in case_set.shapes:
                for load in case_set.loads:
                    rate = case_set.rate_rps * count
                    law = BatchLaw(Poisson(rate), size, window_s)
                    exec_s = load * count * law.mean_size / rate
                    per_item_s = (exec_s - case_set.base_s) / law.mean_size
                    if per_item_s < 0:  # the base alone is more
                        continue
                    rates = rate / phases.ratio, rate
                    switch = 1 / phases.mean_s or None
                    process = mmpp2(rates, (switch, switch)) if switch else Poisson(rate)
                    seconds = tuple(
                        case_set.base_s + per_item_s * number for number in range(1, size + 1)
                    )
                    yield Case(
                        arrivals, process, rates, switch, size, window_s, seconds, count, load
                    )


@dataclass(frozen=True, slots=True)
class Row:
    """A case with its quantiles in ms, by `SHARES`."""

    case: Case
    simulated: tuple[float, ...]
    half_width: tuple[float, ...]
    law: tuple[float, ...]
    erlang: tuple[float, ...]
    requests: int
    law_ms: float


def simulated(case: Case, requests: int, width: float, most: int) -> tuple[Times, Times, int]:
    """Return the quantiles of all runs in ms, their half-widths, and the number of requests.

    Args:
        case: What is simulated.
        requests: About how many in each run.
        width: Half-width of an interval, relative to its quantile, that is small enough.
        most: Number of requests after which runs end anyway.
    """
    batching = Batching(case.size, case.window_s, case.seconds, case.instances)
    histogram = Histogram((case.window_s + case.seconds[-1]) / _BINS)
    pooled = np.zeros(histogram.bins, np.int64)
    runs: list[Times] = []
    while True:
        ends_s = _phase_ends_s(case, requests, len(runs))
        # Stratified phases are right only as a whole, and they begin with that of the lower rate.
        from_s = 0.0 if case.switch else float(ends_s[-1]) / _WARM
        seed = len(runs), _DRAWS
        counts = latency_counts(batching, case.rates, ends_s, histogram, seed, from_s)
        pooled += counts
        runs.append(histogram.quantiles(counts, SHARES))
        if len(runs) < _MIN_RUNS:
            continue
        found = histogram.quantiles(pooled, SHARES)
        half = _STUDENT * np.std(runs, axis=0, ddof=1) / math.sqrt(len(runs))
        if (half <= width * found).all() or pooled.sum() >= most:
            return 1000 * found, 1000 * half, int(pooled.sum())


def _phase_ends_s(case: Case, requests: int, seed: int) -> Times:
    span_s = requests / case.process.mean_rate
    if not case.switch:
        return np.array([span_s])
    draw = np.random.default_rng((seed, _PHASES))
    lengths_s = stratified_phases((case.switch, case.switch), span_s, draw)
    ends_s: Times = np.cumsum(lengths_s.ravel())
    return ends_s


def row(case: Case, requests: int, width: float, most: int) -> Row:
    """Simulate a case, and compute the same quantiles by both laws."""
    service = Service.fixed(case.seconds)
    law = BatchLaw(case.process, case.size, case.window_s)
    crowd = LimitedInstances(case.process, law, service)
    began = time.process_time()
    expected = crowd.law(case.instances)
    assert expected is not None
    said = expected.quantiles(SHARES)
    law_ms = 1000 * (time.process_time() - began)
    erlang = law.quantiles(SHARES, crowd.delayed(case.instances))
    found, half, count = simulated(case, requests, width, most)
    return Row(
        case,
        tuple(found.tolist()),
        tuple(half.tolist()),
        tuple((1000 * said).tolist()),
        tuple((1000 * erlang).tolist()),
        count,
        law_ms,
    )


def main(argv: list[str]) -> int:
    """Print every point; return 1 if the law's error exceeds what is allowed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks busy-law", description=__doc__)
    add = parser.add_argument
    add("--requests", type=int, default=4_000_000, help="in each run (4000000)")
    add("--most", type=int, default=4_000_000_000, help="requests of a case (4000000000)")
    add("--width", type=float, default=0.003, help="of a confidence interval's half (0.003)")
    add("--allowed", type=float, default=0.01, help="relative error (0.01)")
    add("--set", choices=list(SETS), default="unseen", help="of cases (unseen)")
    add("--instances", type=int, action="append", metavar="N", help="(all of the set)")
    add("--arrivals", action="append", metavar="NAME", help="(all of the set)")
    add("--json", action="store_true", help="a row of JSON a line")
    flags = parser.parse_args(argv)
    if not shutil.which("cc"):
        parser.error("a C compiler is needed: cc is not on the PATH")
    heads = "".join(f"{f'P{100 * at:g} ms':>10}{'+-':>7}{'law':>8}{'Erlang':>8}" for at in SHARES)
    if not flags.json:
        print(f"{'arrivals':<11}{'n':>3}{'B':>4}{'T ms':>6}{'load':>6}{heads}{'law ms':>8}")
    worst = widest = 0.0
    for case in cases(SETS[flags.set]):
        if case.arrivals not in (flags.arrivals or [case.arrivals]):
            continue
        if case.instances not in (flags.instances or [case.instances]):
            continue
        result = row(case, flags.requests, flags.width, flags.most)
        worst = max([worst, *map(abs, _errors(result, result.law))])
        widest = max([widest, *_relative(result)])
        print(json.dumps(asdict(result)) if flags.json else _line(result), flush=True)
    if not flags.json:
        print(f"largest error {100 * worst:.2f} %, intervals up to +-{100 * widest:.2f} %")
    return 1 if worst > flags.allowed else 0


def _line(found: Row) -> str:
    case = found.case
    cells = "".join(
        f"{at:10.1f}{100 * half:6.2f}%{100 * law:+7.2f}%{100 * erlang:+7.1f}%"
        for at, half, law, erlang in zip(
            found.simulated,
            _relative(found),
            _errors(found, found.law),
            _errors(found, found.erlang),
            strict=True,
        )
    )
    shape = f"{case.instances:>3}{case.size:>4}{1000 * case.window_s:>6g}{case.load:>6g}"
    return f"{case.arrivals:<11}{shape}{cells}{found.law_ms:8.1f}"


def _relative(found: Row) -> list[float]:
    return [half / seen for half, seen in zip(found.half_width, found.simulated, strict=True)]


def _errors(found: Row, said: tuple[float, ...]) -> list[float]:
    return [guess / seen - 1 for guess, seen in zip(said, found.simulated, strict=True)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
