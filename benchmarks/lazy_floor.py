"""Find what any way of batching could achieve: ``python -m benchmarks lazy --floor``.

The two example models that generate step by step are simulated from their stages' times alone,
without a sidecar, hops or neighbours. So the ways differ only in how long they make requests wait,
and the latency of a lone request is the lower limit of a mean. In every way a finished sequence
leaves its batch, as in the handler. Late responses are counted against objectives that the
executor knows, and against the same objectives when it knows none.
"""

from __future__ import annotations

import random
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks.staged import PendingArrival, lazily, windowed
from carpool.lazy_batching.program import Node, NodeType, Program, RemainingRuns
from carpool.lazy_batching.rules import Rules

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["LENGTHS", "MEAN_LENGTH", "latencies_s", "main", "model", "ways"]

# Sequence lengths in the benchmarks of LazyBatching, with the share of each.
LENGTHS = {5: 0.2, 15: 0.45, 25: 0.25, 35: 0.1}  # of the authors' public prototype
MEAN_LENGTH = sum(length * share for length, share in LENGTHS.items())
BATCH_MAX = 16
LOADS = (0.2, 0.5, 0.9)
WINDOWS_MS = (0, 1, 2, 5, 10, 20)
SLOS = (2, 3, 5, 10)
COUNT = 6000
# Milliseconds of the encoder and of a decoder's step in batches of 1, 2, 4, 8, 16: one thread, as
# measured under load, where the encoder finds the decoder's weights in the caches.
TIMES_MS = {
    "recurrent": ((1.99, 2.13, 2.8, 4.75, 8.55), (0.325, 0.475, 0.7, 1.09, 1.73)),
    "transformer": ((0.94, 1.35, 2.35, 4.42, 8.75), (0.36, 0.485, 0.77, 1.25, 2.26)),
}


def model(name: str) -> Program:
    """Return one of the two models, with times interpolated linearly between those measured."""
    encoder, decoder = TIMES_MS[name]
    return Program(name, [Node(_seconds(encoder)), Node(_seconds(decoder), NodeType.DECODER)])


def ways() -> dict[str, Callable[[list[PendingArrival]], None]]:
    """Return all ways to run requests, by name."""
    by_name: dict[str, Callable[[list[PendingArrival]], None]] = {
        "none": partial(windowed, window_s=0.0, size=1, leaving=True)
    }
    for window_ms in WINDOWS_MS:
        window = partial(windowed, window_s=window_ms / 1000, size=BATCH_MAX, leaving=True)
        by_name[f"{window_ms} ms"] = window
    return by_name | {"lazy": partial(lazily, rules=Rules())}


def latencies_s(
    program: Program,
    rate_rps: float,
    run: Callable[[list[PendingArrival]], None],
    sla_s: float = 1e6,
) -> list[float]:
    """Return the latencies of Poisson arrivals."""
    draw, requests, now = random.Random(1), [], 0.0
    for _ in range(COUNT):
        now += draw.expovariate(rate_rps)
        steps = draw.choices(list(LENGTHS), list(LENGTHS.values()))[0]
        requests.append(PendingArrival(now, program, sla_s, RemainingRuns(1, steps), predicted=25))
    run(requests)
    return [request.latency_s for request in requests]


def capacity_rps(program: Program) -> float:
    """Return the responses per second in full batches, with all requests present at the start."""
    draw = random.Random(1)
    steps = draw.choices(list(LENGTHS), list(LENGTHS.values()), k=COUNT)
    requests = [PendingArrival(0.0, program, 1e6, RemainingRuns(1, count)) for count in steps]
    windowed(requests, 0.0, BATCH_MAX, leaving=True)
    return COUNT / max(request.ended for request in requests)


def main() -> int:
    """Simulate and print."""
    for name in TIMES_MS:
        program = model(name)
        alone_s = sum(p * program.seconds(0, RemainingRuns(1, n)) for n, p in LENGTHS.items())
        full_rps = capacity_rps(program)
        print(f"\n{name}: {full_rps:.0f} a second in full batches", end="; ")
        print(f"one alone takes {1000 * alone_s:.2f} ms; mean latency in ms")
        print(f"{'load':>5} " + "".join(f"{way:>9}" for way in ways()) + f"{'best / lazy':>13}")
        for load in LOADS:
            _print_load(program, load, full_rps)
        print("late, as shares, by objective in latencies of a lone request:")
        print("best window / lazy, told / lazy, not told")
        print(f"{'load':>5} " + "".join(f"{f'{times}x':>26}" for times in SLOS))
        for load in LOADS[1:]:
            _print_late(program, load, full_rps, alone_s)
    return 0


def _print_load(program: Program, load: float, full_rps: float) -> None:
    latencies_ms = {
        way: 1000 * fmean(latencies_s(program, load * full_rps, run)) for way, run in ways().items()
    }
    best = min(latencies_ms[f"{window_ms} ms"] for window_ms in WINDOWS_MS)
    cells = "".join(f"{value:>9.2f}" for value in latencies_ms.values())
    print(f"{load:>5} {cells}{best / latencies_ms['lazy']:>13.2f}", flush=True)


def _print_late(program: Program, load: float, full_rps: float, alone_s: float) -> None:
    runs, cells = ways(), ""
    whole = [latencies_s(program, load * full_rps, runs[f"{w} ms"]) for w in WINDOWS_MS]
    untold = latencies_s(program, load * full_rps, runs["lazy"])
    for times in SLOS:
        sla_s = times * alone_s
        told = latencies_s(program, load * full_rps, runs["lazy"], sla_s)
        best = min(_late(each, sla_s) for each in whole)
        shares = [100 * share for share in (best, _late(told, sla_s), _late(untold, sla_s))]
        cells += f"{shares[0]:>8.2f} /{shares[1]:>6.2f} /{shares[2]:>6.2f} %"
    print(f"{load:>5} {cells}", flush=True)


def _late(latencies: Sequence[float], sla_s: float) -> float:
    return sum(latency_s > sla_s for latency_s in latencies) / len(latencies)


def _seconds(measured_ms: Sequence[float]) -> list[float]:
    filled = [measured_ms[0] / 1000]
    for place, upper_ms in enumerate(measured_ms[1:]):
        lower_ms, steps = measured_ms[place], 2**place
        filled += [
            (lower_ms + (upper_ms - lower_ms) * step / steps) / 1000 for step in range(1, steps + 1)
        ]
    return filled
