"""The matrix as a self-contained HTML file, and as a picture.

Both show two heat maps: each policy's cost over the bound per cell, and its misses.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from html import escape
from typing import TYPE_CHECKING

from simulator.matrix.summary import COLUMNS, HELD, outcomes, standings
from simulator.reports import heat_map
from simulator.reports.heat_map import HeatMap, Tile
from simulator.reports.html_report import document

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from simulator.matrix.rows import Row
    from simulator.matrix.summary import Outcome

__all__ = ["COST", "MISSED", "maps", "page", "picture"]

_ABOUT = (
    "Each row is one load, model, objective and billing rule; every policy got the same requests. "
    "The bound is the cost with perfect foresight, which no policy reaches. A dash: the policy "
    "failed, or had no cost. A policy holds a cell if it misses at most 3 % of its requests."
)

COST, MISSED = "Cost over bound", "Requests missed"
_COSTS = (1.1, 1.5, 2.5, 5.0, 10.0)  # upper ends of all levels but the last
_MISSES = (0.0005, 0.0025, 0.01, HELD, 0.1)
_COST_NAMES = ("to 1.1", "1.5", "2.5", "5", "10", "more")
_MISS_NAMES = ("to 0.05 %", "0.25 %", "1 %", "3 %", "10 %", "more")
_MANY = 100  # from here on numbers have no decimals, which would not fit into a cell


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
    return Tile(times, bisect_left(_COSTS, one.over_bound), _tooltip(policy, cell, one), best)


def _miss_tile(policy: str, cell: str, of: Mapping[str, Outcome]) -> Tile:
    one = of.get(policy)
    if one is None:
        return Tile("-", None, f"{policy}, {cell}: no run")
    percent = 100 * one.missed
    text = f"{percent:.{0 if percent >= _MANY else 2}f}"
    return Tile(text, bisect_left(_MISSES, one.missed), _tooltip(policy, cell, one))


def _tooltip(policy: str, cell: str, one: Outcome) -> str:
    paid = f"{one.over_bound:.3g} times the bound" if one.over_bound < math.inf else "no cost"
    return f"{policy}, {cell}: {paid}, {one.missed:.2%} missed"


def _cheapest(of: Mapping[str, Outcome]) -> float:
    return min((one.cost for one in of.values() if one.missed <= HELD), default=math.inf)


def page(rows: Sequence[Row]) -> str:
    """Return the HTML file: a table over all cells, then heat maps for each trace."""
    cells, seeds = len({row.cell for row in rows}), len({row.seed for row in rows})
    traces = dict.fromkeys(row.cell.partition("/")[0] for row in rows)
    sections = "".join(
        _section(trace, [row for row in rows if row.cell.partition("/")[0] == trace])
        for trace in traces
    )
    body = f"<p>{escape(_ABOUT)}</p>{_table(rows)}{sections}"
    return document(f"Matrix: {cells} cells, {seeds} {'seed' if seeds == 1 else 'seeds'}", body)


def picture(rows: Sequence[Row]) -> str:
    """Return both heat maps of all cells as an SVG file."""
    return heat_map.picture([(_title(title), drawn) for title, drawn in maps(rows).items()])


def _title(title: str) -> str:
    return f"{title}, percent" if title == MISSED else title


def _section(trace: str, rows: Sequence[Row]) -> str:
    figures = "".join(_figure(title, drawn) for title, drawn in maps(rows, short=True).items())
    return f'<h2>{escape(trace)}</h2><div class="charts">{figures}</div>'


def _figure(title: str, drawn: HeatMap) -> str:
    return (
        f"<figure><figcaption>{escape(_title(title))}</figcaption>{heat_map.chart(drawn)}</figure>"
    )


def _table(rows: Sequence[Row]) -> str:
    heads = "".join(f"<th>{escape(name)}</th>" for name in COLUMNS)
    lines = "".join(
        "<tr>"
        + "".join(f"<td>{escape(show(each).strip('`'))}</td>" for show in COLUMNS.values())
        + "</tr>"
        for each in standings(rows)
    )
    return f'<div class="wide"><table><tr>{heads}</tr>{lines}</table></div>'
