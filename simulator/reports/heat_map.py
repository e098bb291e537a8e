"""Draw a heat map as SVG, with one row per item and one column per alternative.

It knows only texts and levels, not their meaning. Cells have fixed colours in light and dark mode,
so a level looks the same everywhere.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from simulator.reports import svg

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LEVELS", "STYLE", "HeatMap", "Tile", "chart", "picture"]

_COLORS = ("#f3f6ea", "#fbe6b4", "#f7c276", "#ec8f4a", "#cc5330", "#8c2318")
LEVELS = len(_COLORS)
_LIGHT_INK = 4  # from this level on, text is light
STYLE = (
    ".tile{stroke:#8886;stroke-width:.5}.tile.best{stroke:var(--c0);stroke-width:2.5}"
    ".dark-ink{fill:#222}.light-ink{fill:#fff}.none{fill:none}"
    ".legend b{display:inline-block;width:1em;height:1em;margin-right:.4em;"
    "border:1px solid #8886;vertical-align:-.15em}"
) + "".join(f".level-{n}{{fill:{color};background:{color}}}" for n, color in enumerate(_COLORS))
_ROW, _COLUMN, _LABEL = 20, 46, 8  # _LABEL: width of a character
_TURN = 40  # angle of the names of columns, in degrees
_GAP, _TITLE, _LEGEND = 24, 30, 28


@dataclass(frozen=True, slots=True)
class Tile:
    """One cell.

    Attributes:
        text: Text in the cell.
        level: Colour from 0, pale, to `LEVELS` - 1; None for no colour.
        tooltip: Text shown when the pointer is over the cell.
        best: Whether the cell is outlined.
    """

    text: str
    level: int | None
    tooltip: str
    best: bool = False


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Contents of a heat map.

    Attributes:
        columns: Names of the columns.
        rows: Names of the rows, each with one cell per column.
        levels: Meaning of each level, for the legend.
        best: Meaning of an outline, for the legend; empty if no cell is outlined.
        named: Whether rows show their names; if not, they are those of a chart to the left.
    """

    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Tile]]]
    levels: Sequence[str]
    best: str = ""
    named: bool = True

    @property
    def label_width(self) -> float:
        """Width of the row names."""
        if not self.named:
            return 0.0
        return _LABEL * max((len(name) for name, _ in self.rows), default=0) + 8

    @property
    def head(self) -> float:
        """Height of the column names."""
        return 18 + self._longest * math.sin(math.radians(_TURN))

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in SVG units."""
        beyond = self._longest * math.cos(math.radians(_TURN)) - _COLUMN / 2
        width = self.label_width + _COLUMN * len(self.columns) + max(beyond, 4)
        return width, self.head + _ROW * len(self.rows) + 2

    @property
    def _longest(self) -> float:
        return _LABEL * max(map(len, self.columns), default=0)


def chart(drawn: HeatMap) -> str:
    """Return a chart for an HTML page, with the legend below it."""
    if not drawn.rows:
        return "<p>Nothing to draw.</p>"
    legend = [
        f'<span><b class="level-{level}"></b>{escape(name)}</span>'
        for level, name in enumerate(drawn.levels)
    ]
    if drawn.best:
        box = '<b style="border:2px solid var(--c0)"></b>'
        legend.append(f"<span>{box}{escape(drawn.best)}</span>")
    return svg.framed(_parts(drawn), legend, ' class="heat"', drawn.size)


def picture(charts: Sequence[tuple[str, HeatMap]]) -> str:
    """Return charts side by side as one SVG file, with their titles and a legend."""
    parts, left = [], float(_GAP)
    names = [name for name, _ in charts[0][1].rows]
    for number, (title, whole) in enumerate(charts):
        again = number > 0 and [name for name, _ in whole.rows] == names
        drawn = dataclasses.replace(whole, named=not again)
        width, height = drawn.size
        parts.append(
            f'<g transform="translate({left:g} {_TITLE})">'
            f'<text x="0" y="-8" font-weight="bold">{escape(title)}</text>'
            f"{''.join(_parts(drawn))}{_legend(drawn, height)}</g>"
        )
        left += max(width, _legend_width(drawn)) + _GAP
    tall = _TITLE + max(drawn.size[1] for _, drawn in charts) + _LEGEND
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left:g} {tall:g}" '
        f'width="{left:g}"><style>{svg.STYLE}{STYLE}</style>'
        f'<rect class="back" width="{left:g}" height="{tall:g}"/>{"".join(parts)}</svg>\n'
    )


def _parts(drawn: HeatMap) -> list[str]:
    left = drawn.label_width
    heads = [
        f'<text transform="translate({left + _COLUMN * (at + 0.45):.1f} {drawn.head - 6:.1f}) '
        f'rotate(-{_TURN})">'
        f"{escape(name)}</text>"
        for at, name in enumerate(drawn.columns)
    ]
    return [
        *heads,
        *(
            part
            for number, row in enumerate(drawn.rows)
            for part in _row(row, left, drawn.head + _ROW * number)
        ),
        *(  # over their neighbours
            _frame(left + _COLUMN * at, drawn.head + _ROW * number)
            for number, (_, tiles) in enumerate(drawn.rows)
            for at, tile in enumerate(tiles)
            if tile.best
        ),
    ]


def _row(row: tuple[str, Sequence[Tile]], left: float, top: float) -> list[str]:
    name, tiles = row
    label = f'<text x="{left - 6:g}" y="{top + 14:.1f}" text-anchor="end">{escape(name)}</text>'
    return [
        *([label] if left else []),
        *(_tile(tile, left + _COLUMN * at, top) for at, tile in enumerate(tiles)),
    ]


def _tile(tile: Tile, x: float, y: float) -> str:
    color = "none" if tile.level is None else f"level-{tile.level}"
    ink = "" if tile.level is None else _ink(tile.level)
    return (
        f'<g><title>{escape(tile.tooltip)}</title><rect class="tile {color}" x="{x:g}" y="{y:.1f}" '
        f'width="{_COLUMN}" height="{_ROW}"/><text{ink} x="{x + _COLUMN / 2:g}" y="{y + 14:.1f}" '
        f'text-anchor="middle">{escape(tile.text)}</text></g>'
    )


def _ink(level: int) -> str:
    return f' class="{"light" if level >= _LIGHT_INK else "dark"}-ink"'


def _frame(x: float, y: float) -> str:
    return (
        f'<rect class="tile best none" x="{x + 1:g}" y="{y + 1:.1f}" '
        f'width="{_COLUMN - 2}" height="{_ROW - 2}"/>'
    )


def _legend(drawn: HeatMap, top: float) -> str:
    """Return the legend on one line."""
    names = [(f"level-{level}", name) for level, name in enumerate(drawn.levels)]
    parts, x = [], 0.0
    for style, name in [*names, *([("best none", drawn.best)] if drawn.best else [])]:
        parts.append(
            f'<rect class="tile {style}" x="{x + 1:g}" y="{top + 8:g}" width="12" height="12"/>'
            f'<text x="{x + 18:g}" y="{top + 18:g}">{escape(name)}</text>'
        )
        x += _entry_width(name)
    return "".join(parts)


def _legend_width(drawn: HeatMap) -> float:
    return sum(map(_entry_width, [*drawn.levels, *([drawn.best] if drawn.best else [])]))


def _entry_width(name: str) -> float:
    return 30 + 6.0 * len(name)
