"""``python -m benchmarks ablation``: the policy `carpool` with each part switched, one at a time.

The cells are chosen by a rule: of the sixth of all cells that ``carpool compare --matrix`` runs, in
its order, the first and the third of every five. So each model comes three times, and billing rules
and objectives are even. Their seeds have tuned nothing. A part that only one billing rule has is
left out where that rule does not hold. Rows that are kept in ``results/ablation.jsonl`` are not run
again; after a change of the policy's code remove the file.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from simulator.intervals import half_interval
from simulator.matrix.bound import lower_bound
from simulator.matrix.cells import catalogue
from simulator.matrix.rows import Rows
from simulator.matrix.runs import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from simulator.matrix.cells import Cell
    from simulator.matrix.rows import Row

__all__ = ["PARTS", "Part", "cells", "main", "table"]

_OUT = Path(__file__).parent / "results" / "ablation.jsonl"
_WHOLE = "carpool"


@dataclass(frozen=True)
class Part:
    """A part of the policy.

    Attributes:
        without: Parameters that switch it over.
        billing: The only billing rule that has it; empty: both have.
    """

    without: dict[str, Any]
    billing: str = ""

    def concerns(self, cell: Cell) -> bool:
        """Whether it may make a difference there."""
        return self.billing in ("", cell.billing)


PARTS = {
    "fill off": Part({"fill": False}, "pay-per-use"),
    "mix off": Part({"mix": False}, "reserved"),
    "wait off": Part({"wait": False}, "reserved"),
    "trend off": Part({"trend": False}),
    "surge on": Part({"surge": True}),
    "reserve 1": Part({"reserve": 1.0}),
}


def cells() -> list[Cell]:
    """Those that parts are switched off in."""
    return [cell for at, cell in enumerate(catalogue().cells(1 / 6)) if at % 5 in (0, 2)]


def main(argv: list[str]) -> int:
    """Run what the file does not have, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ablation", description=__doc__)
    parser.add_argument("--seeds", default="31,32,33", help="of the requests (%(default)s)")
    parser.add_argument("--horizon", type=float, default=300.0, help="seconds each (%(default)s)")
    parser.add_argument("--out", type=Path, default=_OUT, help="file of rows (%(default)s)")
    flags = parser.parse_args(argv)
    rows = Rows(flags.out)
    asked: list[Row] = []
    for seed in map(int, flags.seeds.split(",")):
        for cell in cells():
            asked += _made(rows, cell, flags.horizon, seed)
    sys.stdout.write(table(asked))
    return 0


def _made(rows: Rows, cell: Cell, horizon_s: float, seed: int) -> list[Row]:
    """The rows of one cell and seed, those that are missing made."""
    parts = {name: part.without for name, part in PARTS.items() if part.concerns(cell)}
    wanted: dict[str, dict[str, Any]] = {_WHOLE: {}, **parts}
    found = {row.policy: row for row in rows.find(cell.name, horizon_s, seed)}
    policies = {name: {"policy": _WHOLE, **given} for name, given in wanted.items()}
    scenario = replace(catalogue().scenario(cell, horizon_s, seed), policies=policies)
    bound = lower_bound(scenario) if wanted.keys() - found.keys() else 0.0
    for name in wanted.keys() - found.keys():
        found[name] = simulate(cell.name, scenario, name, bound)
        rows.add(found[name])
    return [found[name] for name in wanted]


def table(rows: Sequence[Row]) -> str:
    """Each part beside the whole, in the cells that it concerns; intervals are over the seeds."""
    by_key = {(row.cell, row.seed, row.policy): row for row in rows}
    lines = [
        "| | cells | cost over bound | the whole's | times | missed | the whole's | points more |",
        "|---|" + "---:|" * 7,
    ]
    for name in PARTS:
        pairs = [(row, by_key[row.cell, row.seed, _WHOLE]) for row in rows if row.policy == name]
        lines.append(f"| `{name}` | {' | '.join(_compared(pairs))} |")
    return "\n".join(lines) + "\n"


def _compared(pairs: Sequence[tuple[Row, Row]]) -> list[str]:
    """What is shown of a part: it, and the whole, in the same cells with the same requests."""
    seeds = dict.fromkeys(row.seed for row, _ in pairs)

    def over_seeds(number: Callable[[Row, Row], float]) -> list[float]:
        return [fmean(number(*pair) for pair in pairs if pair[0].seed == seed) for seed in seeds]

    times = over_seeds(lambda off, whole: math.log(off.cost / whole.cost))
    points = over_seeds(lambda off, whole: 100 * (off.missed - whole.missed))
    return [
        str(len({row.cell for row, _ in pairs})),
        f"{math.exp(fmean(math.log(off.over_bound) for off, _ in pairs)):.2f}",
        f"{math.exp(fmean(math.log(whole.over_bound) for _, whole in pairs)):.2f}",
        f"{math.exp(fmean(times)):.3f} ± {math.exp(fmean(times)) * half_interval(times):.3f}",
        f"{fmean(off.missed for off, _ in pairs):.2%}",
        f"{fmean(whole.missed for _, whole in pairs):.2%}",
        f"{fmean(points):+.2f} ± {half_interval(points):.2f}",
    ]
