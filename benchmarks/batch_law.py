"""Compare predicted with simulated latencies of batches: ``python -m benchmarks batch-law``.

The simulator runs batches with ample instances, over sizes and windows, under the workloads of
`batch_cases`. Its results stand beside the exact law, and beside the paper's Eq. 9 with the phases
that the authors' solver guesses. The column "chance" is the difference between the halves of a
simulation.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.batch_cases import (
    SHARES,
    WORKLOADS,
    Workload,
    exact_ms,
    guessed,
    printed_ms,
    seconds_by_size,
    simulated,
    simulated_ms,
)
from carpool.latency import Configuration
from carpool.latency.table import Table
from carpool.scaling import Application, FunctionLoad
from scaler.control.guard import Guard
from scaler.planning.cost import Prices
from scaler.planning.snapshot import Snapshot
from scaler.policies.batch.batch_law import BatchLaw, Service
from scaler.policies.batch.policy import Batch
from simulator.reports import svg
from tests.scaler import printed_batch as printed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.arrivals.map_counts import Markovian

__all__ = ["main"]

SIZES = (2, 4, 8, 16, 32)
WINDOWS_S = (0.02, 0.05, 0.1, 0.2, 0.5)


@dataclass(frozen=True, slots=True)
class Row:
    """One choice under one workload; all times in ms, by `SHARES`.

    Attributes:
        workload, size, window_ms: The workload and the choice.
        simulated, exact, printed: Latencies.
        chance: Relative difference between the halves of the simulation.
    """

    workload: str
    size: int
    window_ms: float
    simulated: tuple[float, ...]
    exact: tuple[float, ...]
    printed: tuple[float, ...]
    chance: tuple[float, ...]


def plot(requests: int) -> str:
    """Return an SVG chart of one choice: the law, the simulation, and Eq. 9."""
    workload, size, window_s = WORKLOADS[1], 8, 0.2
    seconds = seconds_by_size(size)
    at = np.linspace(0, seconds[-1] + window_s * 1.1, 500)
    exact = 1 - BatchLaw(workload.process, size, window_s).late(at, Service.fixed(seconds))
    requested, fill_s = guessed(workload, size, window_s)
    eq9 = [printed.eq9(time_s, requested, seconds, window_s, fill_s) for time_s in at.tolist()]
    seen_s, shares = simulated(workload, size, window_s, requests, seed=1).curve()
    seen_ms = [1000 * time_s for time_s in seen_s]
    drawn = [
        svg.Line("simulated", seen_ms, shares, 1),
        svg.Line("exact law", (1000 * at).tolist(), exact.tolist(), 0, dashed=True),
        svg.Line("Eq. 9 as printed", (1000 * at).tolist(), eq9, 3),
    ]
    return svg.standalone(drawn, (330, 150), x_label="latency, ms", y_label="share of requests")


def rows(requests: int, workloads: tuple[Workload, ...] = WORKLOADS) -> Iterator[Row]:
    """Yield all choices under all workloads, with ``requests`` in each simulation."""
    for workload in workloads:
        for size in SIZES:
            for window_s in WINDOWS_S:
                runs = [
                    simulated_ms(workload, size, window_s, requests // 2, seed) for seed in (1, 2)
                ]
                both = tuple(map(_mean, *runs))
                chance = tuple(
                    abs(one - other) / mean for one, other, mean in zip(*runs, both, strict=True)
                )
                yield Row(
                    workload.name,
                    size,
                    1000 * window_s,
                    both,
                    exact_ms(workload.process, size, window_s),
                    printed_ms(workload, size, window_s),
                    chance,
                )


def planning_ms(process: Markovian) -> float:
    """Return the best planning time of five on BATCH's own grid.

    The grid has 28 memory sizes, batches of 1 to 32, and 128 windows.
    """
    sizes = [(1280 + 64 * step) / 1769 for step in range(28)]
    rows = {
        Configuration(batch, cores, 0.0): (0.05 + 0.01 * batch) / cores**0.8
        for cores in sizes
        for batch in range(1, 33)
    }
    model = Table(rows)
    app = Application("all", 1.0, process.mean_rate, process)
    load = FunctionLoad("f", model, 1.0, 0.95, 32, (app,))
    snapshot = Snapshot(0.0, (load,), None, Prices(cpu_core_s=2.88e-5, call=2e-7))
    times_ms = []
    for _ in range(5):
        policy = Guard(Batch(Batch.Params()))
        began = time.perf_counter()
        policy.plan(snapshot)
        times_ms.append(1000 * (time.perf_counter() - began))
    return min(times_ms)


def main(argv: list[str]) -> int:
    """Print the table; return 1 if the exact law's error exceeds what is allowed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks batch-law", description="Predicted and simulated latencies."
    )
    parser.add_argument("--requests", type=int, default=400_000, help="in each simulation")
    parser.add_argument("--allowed", type=float, default=0.02, help="relative error")
    parser.add_argument("--json", action="store_true", help="a row of JSON a line")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="only draw one case")
    arguments = parser.parse_args(argv)
    if arguments.plot:
        arguments.plot.write_text(plot(arguments.requests), encoding="utf-8")
        return 0
    heads = "".join(f"{f'P{100 * at:g}':>10}{'exact':>8}{'Eq. 9':>8}{'chance':>8}" for at in SHARES)
    if not arguments.json:
        print(f"{'arrivals':<14}{'B':>3}{'T ms':>6}{heads}")
    table: list[Row] = []
    for row in rows(arguments.requests):
        table.append(row)
        print(json.dumps(dataclasses.asdict(row)) if arguments.json else _line(row), flush=True)
    exact = [abs(error) for row in table for error in _errors(row, row.exact)]
    eq9 = [abs(error) for row in table for error in _errors(row, row.printed)]
    if not arguments.json:
        for name, errors in (("exact", exact), ("Eq. 9", eq9)):
            mean, most = 100 * float(np.mean(errors)), 100 * max(errors)
            print(f"{name}: mean error {mean:.2f} %, largest {most:.2f} %")
        for workload in WORKLOADS:
            print(f"a plan for {workload.name}: {planning_ms(workload.process):.0f} ms")
    return 1 if max(exact) > arguments.allowed else 0


def _line(row: Row) -> str:
    cells = "".join(
        f"{at:10.1f}{100 * exact:+7.1f}%{100 * eq9:+7.1f}%{100 * chance:7.1f}%"
        for at, exact, eq9, chance in zip(
            row.simulated,
            _errors(row, row.exact),
            _errors(row, row.printed),
            row.chance,
            strict=True,
        )
    )
    return f"{row.workload:<14}{row.size:>3}{row.window_ms:>6g}{cells}"


def _errors(row: Row, predicted: tuple[float, ...]) -> list[float]:
    return [guess / seen - 1 for guess, seen in zip(predicted, row.simulated, strict=True)]


def _mean(one: float, other: float) -> float:
    return (one + other) / 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
