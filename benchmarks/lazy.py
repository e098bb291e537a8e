"""Simulate LazyBatching in the paper's setting: ``python -m benchmarks lazy``; live: ``--live``.

``--floor`` shows what batching can achieve at all for the example models (`lazy_floor`);
``--points`` shows whether stages are ever worse than whole batches (`lazy_points`).

ResNet takes 1.1 ms, GNMT 7.2 ms and Transformer 2.4 ms for a batch of one; a batch of b takes
0.75 + 0.25 b times as long. Arrivals are Poisson, with an SLA of 100 ms and batches of at most 64.
Sequences have the four lengths of the authors' public prototype. What the paper does not state is
chosen here: 50 nodes for ResNet, 4 in each loop of GNMT, 6 of the Transformer's encoder, which
takes an eighth of its time, and 6 in its decoder's loop.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING

from benchmarks import lazy_floor, lazy_points
from benchmarks.lazy_floor import LENGTHS, MEAN_LENGTH
from benchmarks.staged import PendingArrival, lazily, windowed
from carpool.lazy_batching.program import Node, NodeType, Program, RemainingRuns
from carpool.lazy_batching.rules import PAPER, Rules

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["main", "measured", "model"]

BATCH_MAX = 64
SLA_S = 0.1
RATES_RPS = (16, 64, 250, 500, 1000, 2000)
WINDOWS_MS = tuple(range(5, 100, 10))
PREDICTED = 25  # covers nine of ten
ORACLE = Rules(lost="block", pays=False)  # with true lengths and the times of batches
PAPERS = {"latency": 15.0, "throughput": 1.5, "satisfaction": 5.5}


@dataclass(frozen=True, slots=True)
class Result:
    """Results of one run.

    Attributes:
        mean_ms: mean latency.
        p99_ms: 99th percentile of the latency.
        rps: responses per second, from the first arrival to the last response.
        missed: share of responses later than the SLA.
    """

    mean_ms: float
    p99_ms: float
    rps: float
    missed: float


def model(name: str) -> Program:
    """Return one of the three models."""
    loop_s = 0.0072 / (8 * MEAN_LENGTH)
    nodes = {
        "ResNet": [(0.0011 / 50, NodeType.STATIC)] * 50,
        "GNMT": [(loop_s, NodeType.ENCODER)] * 4 + [(loop_s, NodeType.DECODER)] * 4,
        "Transformer": [(0.0003 / 6, NodeType.STATIC)] * 6
        + [(0.0021 / 6 / MEAN_LENGTH, NodeType.DECODER)] * 6,
    }
    sizes = range(1, BATCH_MAX + 1)
    return Program(
        name,
        [
            Node([seconds * (0.75 + 0.25 * size) for size in sizes], kind)
            for seconds, kind in nodes[name]
        ],
    )


def measured(
    program: Program,
    rate_rps: float,
    count: int,
    seed: int,
    run: Callable[[list[PendingArrival]], None],
    *,
    known: bool = False,
) -> Result:
    """Generate requests and run them.

    Args:
        program: the model.
        rate_rps: rate of the Poisson process.
        count: number of requests.
        seed: seed of arrivals and lengths.
        run: function that runs the requests.
        known: whether the output lengths are known beforehand.
    """
    draw = random.Random(seed)
    requests, now = [], 0.0
    for _ in range(count):
        now += draw.expovariate(rate_rps)
        steps = RemainingRuns(*draw.choices(list(LENGTHS), list(LENGTHS.values()), k=2))
        predicted = steps.decoder if known else PREDICTED
        requests.append(PendingArrival(now, program, SLA_S, steps, predicted))
    run(requests)
    latencies = sorted(request.latency_s for request in requests)
    span_s = max(request.ended for request in requests) - requests[0].at
    late = sum(latency > SLA_S + 1e-9 for latency in latencies)
    return Result(
        1000 * fmean(latencies), 1000 * latencies[int(0.99 * count)], count / span_s, late / count
    )


def sweep(name: str, rate_rps: float, count: int, seeds: Sequence[int]) -> dict[str, Result]:
    """Run one model at one rate in every way, and return the mean of several runs of each."""
    program = model(name)
    ways: dict[str, tuple[Callable[[list[PendingArrival]], None], bool]] = {
        "serial": (partial(windowed, window_s=0.0, size=1), False),
        "lazy": (partial(lazily, rules=PAPER), False),
        "oracle": (partial(lazily, rules=ORACLE), True),
        "carpool": (partial(lazily, rules=Rules()), False),
    }
    for window_ms in WINDOWS_MS:
        window = partial(windowed, window_s=window_ms / 1000, size=BATCH_MAX)
        ways[f"{window_ms} ms"] = (window, False)
    results = {}
    for way, (run, known) in ways.items():
        runs = [measured(program, rate_rps, count, seed, run, known=known) for seed in seeds]
        columns = zip(*((r.mean_ms, r.p99_ms, r.rps, r.missed) for r in runs), strict=True)
        results[way] = Result(*map(fmean, columns))
    return results


def ratios(rows: Sequence[dict[str, Result]], way: str) -> dict[str, float]:
    """Return the gains of ``way`` over windows across all rates: over each, and over the best."""
    windows = [f"{ms} ms" for ms in WINDOWS_MS]
    latency = [row[w].mean_ms / row[way].mean_ms for row in rows for w in windows]
    best = [min(row[w].mean_ms for w in windows) / row[way].mean_ms for row in rows]
    rate = [row[way].rps / row[w].rps for row in rows for w in windows]
    kept = [(1 - row[way].missed, fmean(1 - row[w].missed for w in windows)) for row in rows]
    kept_by_all = fmean(all_of for _, all_of in kept)
    return {
        "latency": fmean(latency),
        "latency, best window": fmean(best),
        "throughput": fmean(rate),
        "satisfaction": fmean(own for own, _ in kept) / max(kept_by_all, 1e-9),
    }


def main(argv: list[str]) -> int:
    """Run and print text, or JSON with ``--json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks lazy")
    parser.add_argument("--requests", type=int, default=2000, help="in each run (2000)")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each (2)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--live", action="store_true", help="real models behind a real sidecar")
    parser.add_argument("--points", action="store_true", help="every load, against whole batches")
    parser.add_argument("--floor", action="store_true", help="what any way could reach")
    flags, rest = parser.parse_known_args(argv)
    if flags.points:
        return lazy_points.main(flags.requests)
    if flags.floor:
        return lazy_floor.main()
    if flags.live:
        from benchmarks import lazy_live  # noqa: PLC0415  needs models and processes

        return lazy_live.main(rest, as_json=flags.json)
    results: dict[str, dict[int, dict[str, Result]]] = {}
    for name in ("ResNet", "GNMT", "Transformer"):
        results[name] = {
            rate: sweep(name, rate, flags.requests, range(flags.seeds)) for rate in RATES_RPS
        }
    if flags.json:
        print(json.dumps(results, default=asdict, indent=1))
        return 0
    for name, rows in results.items():
        _print(name, rows)
    return 0


def _print(name: str, rows: dict[int, dict[str, Result]]) -> None:
    print(f"\n{name}: mean latency in ms, and the share later than {1000 * SLA_S:g} ms")
    windows = [f"{ms} ms" for ms in WINDOWS_MS]
    print(f"{'rate':>6} " + "".join(f"{way:>16}" for way in ("serial", "best window", *_WAYS)))
    for rate, row in rows.items():
        best = min((row[window] for window in windows), key=lambda result: result.mean_ms)
        cells = [row["serial"], best, *(row[way] for way in _WAYS)]
        print(f"{rate:>6} " + "".join(f"{c.mean_ms:>9.2f} {100 * c.missed:>4.0f} %" for c in cells))
    for way in _WAYS:
        told = ", ".join(
            f"{key} {value:.2f}" for key, value in ratios(list(rows.values()), way).items()
        )
        print(f"  {way} over windows: {told}")
    told = ", ".join(f"{key} {value:g}" for key, value in PAPERS.items())
    print(f"  the paper, over windows: {told}")


_WAYS = ("lazy", "oracle", "carpool")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
