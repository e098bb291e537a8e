"""Find whether `lazy` is ever worse than whole batches: ``python -m benchmarks lazy --points``.

Models of different shapes are simulated at many loads, from their stages' times alone and with the
same arrivals for every way: the batch policy `deadline`, windows, and `lazy`. Reported are the mean
and the 99th percentile of `lazy`, each divided by the lowest value of any other way at that point.
The two may be compared with different windows.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import cache, partial
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks.lazy_floor import LENGTHS, capacity_rps, model
from benchmarks.staged import PendingArrival, batched, lazily, windowed
from carpool.lazy_batching.join_decision import could_pay
from carpool.lazy_batching.program import Node, NodeType, Program, RemainingRuns
from carpool.lazy_batching.rules import Rules
from sidecar.policies.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["CASES", "LOADS", "Point", "main", "points"]

BATCH_MAX = 16
LOADS = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95)
WINDOWS_MS = (1, 2, 5, 10, 20)
SEED = 1


def _encoder(base: float, shares: Sequence[float], alone_ms: float = 8.0) -> Program:
    """Return stages that share a model's time, where a batch of b takes base + (1 - base) b."""
    sizes = range(1, BATCH_MAX + 1)
    batch_s = [alone_ms / 1000 * (base + (1 - base) * size) for size in sizes]
    whole = math.fsum(shares)
    return Program("encoder", [Node([s * share / whole for s in batch_s]) for share in shares])


CASES: dict[str, Callable[[], Program]] = {
    "encoder, batches nearly free": lambda: _encoder(0.95, [1] * 8),
    "encoder, b costs 0.75 + 0.25 b": lambda: _encoder(0.75, [1] * 8),
    "encoder, b costs 0.5 + 0.5 b": lambda: _encoder(0.5, [1] * 8),
    "encoder, b costs 0.3 + 0.7 b": lambda: _encoder(0.3, [1] * 8),
    "encoder, b costs 0.15 + 0.85 b": lambda: _encoder(0.15, [1] * 8),
    "encoder, b costs b": lambda: _encoder(0.0, [1] * 8),
    "encoder, unequal stages": lambda: _encoder(0.75, [1, 4, 2, 3]),
    "encoder, two stages": lambda: _encoder(0.75, [1, 1]),
    "four recurrent layers": lambda: _encoder(0.6, [1] * 4, alone_ms=3.0),
    "whole": lambda: _encoder(0.6, [1], alone_ms=3.0),
    "recurrent": lambda: model("recurrent"),
    "transformer": lambda: model("transformer"),
}


@dataclass(frozen=True, slots=True)
class Point:
    """One model at one load, in ms.

    Attributes:
        load: share of the throughput of full batches.
        mean, p99: latency by way.
    """

    load: float
    mean: dict[str, float]
    p99: dict[str, float]

    def best(self, figures: dict[str, float]) -> str:
        """Return the way with the lowest figure, except `lazy`."""
        return min((way for way in figures if way != "lazy"), key=lambda way: figures[way])

    @property
    def over(self) -> tuple[float, float]:
        """Ratios of mean and percentile of `lazy` to the best of the others."""
        both = (self.mean, self.p99)
        return tuple(each["lazy"] / each[self.best(each)] for each in both)  # type: ignore[return-value]


def points(program: Program, loads: Sequence[float], count: int) -> Iterator[Point]:
    """Yield the figures at each load."""
    full_rps = _capacity(program)
    for load in loads:
        latencies = {way: _latencies(program, load * full_rps, run, count) for way, run in _ways()}
        mean = {way: 1000 * fmean(each) for way, each in latencies.items()}
        p99 = {way: 1000 * each[int(0.99 * len(each))] for way, each in latencies.items()}
        yield Point(load, mean, p99)


@cache
def _capacity(program: Program) -> float:
    if _loops(program):
        return capacity_rps(program)
    return BATCH_MAX / program.seconds(0, RemainingRuns(), BATCH_MAX)


def _ways() -> Iterator[tuple[str, Callable[[list[PendingArrival]], None]]]:
    """Yield all ways to run requests, with their names."""
    yield "deadline", _by_deadline
    for window_ms in WINDOWS_MS:
        run = partial(windowed, window_s=window_ms / 1000, size=BATCH_MAX, leaving=True)
        yield f"{window_ms} ms", run
    yield "lazy", _staged


def _staged(requests: list[PendingArrival]) -> None:
    """Run as a handler does: whole, by `deadline`, where no request could gain by joining."""
    program = requests[0].program
    if _loops(program) or could_pay(program):
        lazily(requests, Rules())
    else:
        _by_deadline(requests)


def _by_deadline(requests: list[PendingArrival]) -> None:
    batched(requests, Deadline(Deadline.Params()), BATCH_MAX, leaving=True)


def _loops(program: Program) -> bool:
    return any(block.node_type is NodeType.DECODER for block in program.blocks)


def _latencies(
    program: Program, rate_rps: float, run: Callable[[list[PendingArrival]], None], count: int
) -> list[float]:
    """Return the sorted latencies of Poisson arrivals."""
    draw, requests, now = random.Random(SEED), [], 0.0
    steps_of = [step for step, share in LENGTHS.items() for _ in range(round(20 * share))]
    loops = _loops(program)
    for _ in range(count):
        now += draw.expovariate(rate_rps)
        left = RemainingRuns(1, draw.choice(steps_of)) if loops else RemainingRuns()
        requests.append(PendingArrival(now, program, 1e6, left, predicted=25 if loops else 1))
    run(requests)
    return sorted(request.latency_s for request in requests)


def main(count: int) -> int:
    """Simulate ``count`` requests at every point, and print the results."""
    head = f"{'load':>5} {'deadline':>15} {'best mean':>18} {'best p99':>18} {'lazy':>15}"
    worst = [0.0, 0.0]
    for name, program in CASES.items():
        print(f"\n{name}: mean and 99th percentile in ms")
        print(f"{head} {'mean':>7} {'p99':>6}")
        for point in points(program(), LOADS, count):
            mean, p99 = point.mean, point.p99
            first, second = point.best(mean), point.best(p99)
            print(
                f"{point.load:>5} {mean['deadline']:>7.2f} /{p99['deadline']:>6.1f} "
                f"{mean[first]:>7.2f} {first:>10} {p99[second]:>7.1f} {second:>10} "
                f"{mean['lazy']:>7.2f} /{p99['lazy']:>6.1f} "
                f"{point.over[0]:>6.2f}x {point.over[1]:>5.2f}x",
                flush=True,
            )
            worst = [max(pair) for pair in zip(worst, point.over, strict=True)]
    print(
        f"\nat worst lazy has {worst[0]:.2f} times the best mean, {worst[1]:.2f} times the best p99"
    )
    return 0
