"""Predicted against simulated latencies of batches that wait: ``python -m benchmarks busy-law``.

Batches of several sizes and windows share one instance, or several, at loads up to nine tenths,
under Poisson arrivals and MMPPs whose phases are shorter or longer than an execution. The load is
the part of the time for which instances would be busy in the busiest phase if every batch had one
at once. The law was chosen and tuned on the set ``chosen``; ``unseen``, which differs in all rates,
sizes, windows, numbers of instances and phases, played no part in it.

Each point is simulated, by the batcher's rule, in independent runs; its half-width is that of the
95 % confidence interval of their mean. Runs are added until it is below ``--width`` of the
quantile. Beside it are the errors of the law of `scaler.policies.batch.queueing`, and of the law
for instances enough, delayed by Erlang's C.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.batch_cases import SHARES, Stratified
from carpool.arrivals.markov import mmpp2
from carpool.arrivals.processes import Poisson, timestamps
from scaler.policies.batch.batch_law import BatchLaw, Service
from scaler.policies.batch.queueing import LimitedInstances
from scaler.policies.batch.replay import replayed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.arrivals.map_counts import Markovian
    from carpool.arrivals.processes import Times

__all__ = ["main"]

_MIN_RUNS, _MOST_RUNS = 8, 400
_PATHS = 16  # of a run, each by itself
_WARM = 20  # a twentieth of each path is left out


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


def simulated(case: Case, requests: int, width: float) -> tuple[Times, Times, int]:
    """Return the mean quantiles in ms, their intervals' half-widths, and the number of requests."""
    law, service = BatchLaw(case.process, case.size, case.window_s), Service.fixed(case.seconds)
    runs: list[Times] = []
    half = np.full(len(SHARES), math.inf)
    count = 0
    while len(runs) < _MOST_RUNS and (len(runs) < _MIN_RUNS or (half > width).any()):
        times_s = _arrivals(case, requests // _PATHS, len(runs) + 1)
        draw = np.random.default_rng(0)  # execution times are constant
        with np.errstate(invalid="ignore"):  # latencies where no request came
            outcome = replayed(times_s, law, service, np.zeros(case.instances), draw)
        # The paths of an MMPP hold the right part of each phase, and begin in that of a low load.
        warm = 0 if case.switch else times_s.shape[1] // _WARM
        came = np.isfinite(times_s[:, warm:])
        runs.append(1000 * np.quantile(outcome.latencies_s[:, warm:][came], SHARES))
        count += int(came.sum())
        if len(runs) >= _MIN_RUNS:
            table = np.array(runs)
            error = table.std(axis=0, ddof=1) / math.sqrt(len(runs))
            half = 2.0 * error / table.mean(axis=0)
    mean = np.mean(runs, axis=0)
    return mean, half * mean, count


def _arrivals(case: Case, requests: int, seed: int) -> Times:
    """Return arrival times on independent paths, which end with infinite ones."""
    paths = [_path(case, requests, seed * _PATHS + number) for number in range(_PATHS)]
    times_s = np.full((_PATHS, max(map(len, paths))), np.inf)
    for row_s, path in zip(times_s, paths, strict=True):
        row_s[: len(path)] = path
    return times_s


def _path(case: Case, requests: int, seed: int) -> Times:
    if case.switch:
        path = Stratified(case.rates, (case.switch, case.switch), requests, seed)
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
    erlang = law.quantiles(SHARES, crowd.delayed(case.instances))
    mean, half, count = simulated(case, requests, width)
    return Row(
        case,
        tuple(mean.tolist()),
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
    add("--requests", type=int, default=2_000_000, help="in each run (2000000)")
    add("--width", type=float, default=0.002, help="of a confidence interval's half (0.002)")
    add("--allowed", type=float, default=0.01, help="relative error (0.01)")
    add("--set", choices=list(SETS), default="unseen", help="of cases (unseen)")
    add("--instances", type=int, action="append", metavar="N", help="(all of the set)")
    add("--arrivals", action="append", metavar="NAME", help="(all of the set)")
    add("--json", action="store_true", help="a row of JSON a line")
    flags = parser.parse_args(argv)
    heads = "".join(f"{f'P{100 * at:g} ms':>10}{'+-':>7}{'law':>8}{'Erlang':>8}" for at in SHARES)
    if not flags.json:
        print(f"{'arrivals':<11}{'n':>3}{'B':>4}{'T ms':>6}{'load':>6}{heads}{'law ms':>8}")
    worst = 0.0
    for case in cases(SETS[flags.set]):
        if case.arrivals not in (flags.arrivals or [case.arrivals]):
            continue
        if case.instances not in (flags.instances or [case.instances]):
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
        f"{at:10.1f}{100 * half / at:6.2f}%{100 * law:+7.2f}%{100 * erlang:+7.1f}%"
        for at, half, law, erlang in zip(
            found.simulated,
            found.half_width,
            _errors(found, found.law),
            _errors(found, found.erlang),
            strict=True,
        )
    )
    shape = f"{case.instances:>3}{case.size:>4}{1000 * case.window_s:>6g}{case.load:>6g}"
    return f"{case.arrivals:<11}{shape}{cells}{found.law_ms:8.1f}"


def _errors(found: Row, said: tuple[float, ...]) -> list[float]:
    return [guess / seen - 1 for guess, seen in zip(said, found.simulated, strict=True)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
