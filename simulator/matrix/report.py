"""The matrix as a self-contained HTML file, and as a picture."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from simulator.matrix.heat import MISSED, maps
from simulator.matrix.summary import COLUMNS, standings
from simulator.reports import heat_map
from simulator.reports.html_report import document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.matrix.rows import Row
    from simulator.reports.heat_map import HeatMap

__all__ = ["page", "picture"]

_ABOUT = (
    "Each row is one load, model, objective and billing rule; every policy got the same requests. "
    "The bound is the cost with perfect foresight, which no policy reaches. A dash: the policy "
    "failed, or had no cost. A policy holds a cell if it misses at most 3 % of its requests."
)


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
