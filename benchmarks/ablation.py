"""``python -m benchmarks ablation``: the policy `carpool` with each part switched, one at a time.

The cells are chosen by a rule: of the sixth of all cells that ``carpool compare --matrix`` runs, in
its order, the first of every five. So there are six, with every model, three of each billing rule.
Their seeds have tuned nothing. `foresight` adds a perfect forecast
(`benchmarks/foresight.py`). A part that only one billing rule has is left out where that rule does
not hold. Rows that are kept in ``results/ablation.jsonl`` are not run again; after a change of the
policy's code remove the file.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from benchmarks.machine import commit
from simulator.confidence_intervals import half_interval
from simulator.matrix.bound import lower_bound
from simulator.matrix.cells import catalogue
from simulator.matrix.rows import Rows
from simulator.matrix.runs import simulate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from simulator.matrix.cells import Cell
    from simulator.matrix.rows import Row

__all__ = ["PARTS", "Part", "cells", "main", "table"]

_OUT = Path(__file__).parent / "results" / "ablation.jsonl"
_WHOLE = "carpool"


@dataclass(frozen=True)
class Part:
    """A part of the policy that can be switched.

    Attributes:
        without: Parameters that switch it.
        billing: The only billing rule to which it applies; empty for both.
    """

    without: dict[str, Any]
    billing: str = ""

    def concerns(self, cell: Cell) -> bool:
        """Return whether the part can make a difference in the cell."""
        return self.billing in ("", cell.billing)


PARTS = {
    "fill off": Part({"fill": False}, "pay-per-use"),
    "mix off": Part({"mix": False}, "reserved"),
    "wait off": Part({"wait": False}, "reserved"),
    "replay off": Part({"replay": False}, "reserved"),
    "bursts off": Part({"bursts": False}),
    "repay off": Part({"repay": 0.0}, "reserved"),
    "trend off": Part({"trend": False}),
    "surge on": Part({"surge": True}),
    "reserve 1": Part({"reserve": 1.0}),
    "foresight": Part({"policy": "benchmarks.foresight:Foresight"}, "reserved"),
}


def cells(every: int = 5) -> list[Cell]:
    """Return the cells in which parts are switched."""
    return catalogue().cells(1 / 6)[::every]


def main(argv: list[str]) -> int:
    """Run what is missing from the file, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ablation", description=__doc__)
    parser.add_argument("--seeds", default="31", help="of the requests (%(default)s)")
    parser.add_argument("--horizon", type=float, default=300.0, help="seconds each (%(default)s)")
    parser.add_argument("--out", type=Path, default=_OUT, help="file of rows (%(default)s)")
    parser.add_argument("--every", type=int, default=5, help="the first of so many (%(default)s)")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this; may be repeated")
    flags = parser.parse_args(argv)
    parts = {name: PARTS[name] for name in flags.part or PARTS}
    rows = Rows(flags.out, commit())
    asked: list[Row] = []
    for seed in map(int, flags.seeds.split(",")):
        for cell in cells(flags.every):
            asked += _made(rows, cell, flags.horizon, seed, parts)
    sys.stdout.write(table(asked))
    return 0


def _made(
    rows: Rows, cell: Cell, horizon_s: float, seed: int, parts: Mapping[str, Part]
) -> list[Row]:
    """Return the rows of one cell and seed, running those that are missing."""
    switched = {name: part.without for name, part in parts.items() if part.concerns(cell)}
    wanted: dict[str, dict[str, Any]] = {_WHOLE: {}, **switched}
    known = {row.policy: row for row in rows.find(cell.name, horizon_s, seed)}
    policies = {name: {"policy": _WHOLE, **given} for name, given in wanted.items()}
    if "foresight" in policies:
        policies["foresight"] |= {"cell": cell.name, "horizon_s": horizon_s, "seed": seed}
    scenario = replace(catalogue().scenario(cell, horizon_s, seed), policies=policies)
    bound = lower_bound(scenario) if wanted.keys() - known.keys() else 0.0
    for name in [name for name in wanted if name not in known]:
        known[name] = simulate(cell.name, scenario, name, bound)
        rows.add(known[name])
    return [known[name] for name in wanted]


def table(rows: Sequence[Row]) -> str:
    """Return a table of each part beside the whole policy, with intervals over its runs."""
    by_key = {(row.cell, row.seed, row.policy): row for row in rows}
    lines = [
        "| | runs | cost over bound | the whole's | times | missed | the whole's | points more |",
        "|---|" + "---:|" * 7,
    ]
    for name in [name for name in PARTS if any(row.policy == name for row in rows)]:
        pairs = [(row, by_key[row.cell, row.seed, _WHOLE]) for row in rows if row.policy == name]
        lines.append(f"| `{name}` | {' | '.join(_compared(pairs))} |")
    return "\n".join(lines) + "\n"


def _compared(pairs: Sequence[tuple[Row, Row]]) -> list[str]:
    """Return a part's table cells, from pairs of runs without it and of the whole policy."""
    logs = [math.log(off.cost / whole.cost) for off, whole in pairs]
    points = [100 * (off.missed - whole.missed) for off, whole in pairs]
    times = math.exp(fmean(logs))
    return [
        str(len(pairs)),
        f"{math.exp(fmean(math.log(off.over_bound) for off, _ in pairs)):.2f}",
        f"{math.exp(fmean(math.log(whole.over_bound) for _, whole in pairs)):.2f}",
        f"{times:.3f} ± {times * half_interval(logs):.3f}",
        f"{fmean(off.missed for off, _ in pairs):.2%}",
        f"{fmean(whole.missed for _, whole in pairs):.2%}",
        f"{fmean(points):+.2f} ± {half_interval(points):.2f}",
    ]
