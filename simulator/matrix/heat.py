"""The matrix as two heat maps: each policy's cost over the bound per cell, and its misses."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING

from simulator.matrix.summary import HELD, outcomes
from simulator.reports.heat_map import HeatMap, Tile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from simulator.matrix.rows import Row
    from simulator.matrix.summary import Outcome

__all__ = ["COST", "MISSED", "maps"]

COST, MISSED = "Cost over bound", "Requests missed"
_COSTS = (1.1, 1.5, 2.5, 5.0, 10.0)  # upper ends of all levels but the last
_MISSES = (0.0005, 0.0025, 0.01, HELD, 0.1)
_COST_NAMES = ("to 1.1", "1.5", "2.5", "5", "10", "more")
_MISS_NAMES = ("to 0.05 %", "0.25 %", "1 %", "3 %", "10 %", "more")
_MANY = 100  # from here on no decimals: they would be wider than a cell


def maps(rows: Sequence[Row], *, short: bool = False) -> dict[str, HeatMap]:
    """Return both heat maps by title, with cells in order of first appearance.

    Args:
        rows: Rows of one run.
        short: Whether to leave the trace out of cell names.
    """
    by_cell = outcomes(rows)
    policies = list(dict.fromkeys(row.policy for row in rows))
    named = {cell: cell.partition("/")[2] if short else cell for cell in by_cell}
    return {
        COST: _map(by_cell, policies, named, _cost_tile, _COST_NAMES, "cheapest, up to 3 % missed"),
        MISSED: _map(by_cell, policies, named, _miss_tile, _MISS_NAMES, ""),
    }


def _map(
    by_cell: Mapping[str, Mapping[str, Outcome]],
    policies: Sequence[str],
    named: Mapping[str, str],
    tile: Callable[[str, str, Mapping[str, Outcome]], Tile],
    levels: Sequence[str],
    best: str,
) -> HeatMap:
    rows = [
        (named[cell].replace("/", " "), [tile(policy, cell, of) for policy in policies])
        for cell, of in by_cell.items()
    ]
    return HeatMap(policies, rows, levels, best)


def _cost_tile(policy: str, cell: str, of: Mapping[str, Outcome]) -> Tile:
    one = of.get(policy)
    if one is None or not one.over_bound < math.inf:
        return Tile("-", None, f"{policy}, {cell}: {'no run' if one is None else 'no cost'}")
    times = f"{one.over_bound:.{0 if one.over_bound >= _MANY else 2}f}"
    best = one.missed <= HELD and one.cost <= _cheapest(of)
    return Tile(times, bisect_left(_COSTS, one.over_bound), _says(policy, cell, one), best)


def _miss_tile(policy: str, cell: str, of: Mapping[str, Outcome]) -> Tile:
    one = of.get(policy)
    if one is None:
        return Tile("-", None, f"{policy}, {cell}: no run")
    percent = 100 * one.missed
    text = f"{percent:.{0 if percent >= _MANY else 2}f}"
    return Tile(text, bisect_left(_MISSES, one.missed), _says(policy, cell, one))


def _says(policy: str, cell: str, one: Outcome) -> str:
    paid = f"{one.over_bound:.3g} times the bound" if one.over_bound < math.inf else "no cost"
    return f"{policy}, {cell}: {paid}, {one.missed:.2%} missed"


def _cheapest(of: Mapping[str, Outcome]) -> float:
    return min((one.cost for one in of.values() if one.missed <= HELD), default=math.inf)
