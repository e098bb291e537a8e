"""Small charts as inline SVG: lines over an axis with round numbers, and bars.

Heat maps are drawn by `simulator.reports.heat_map`. Colours and line styles are those of the
scaler's page.

This module knows points and labels, but not their meaning.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CHARTS", "COLORS", "STYLE", "Line", "Mark", "bars", "framed", "lines", "standalone"]

CHARTS = resources.files("scaler.dashboard").joinpath("charts.css").read_text(encoding="utf-8")
COLORS = 8  # number of colors in charts.css

_WIDTH, _HEIGHT = 520, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 16, 10, 34
_POINTS = 600  # more would not be visible
_TICKS = 5
_LOG_TICKS = 4
_BEFORE = 0.8
STYLE = CHARTS + "text{font:11px sans-serif}.back{fill:var(--back)}"  # style of a chart file
_BARS = 5  # least number of positions, so that one bar does not fill the chart


@dataclass(frozen=True, slots=True)
class Line:
    """Points to connect, ascending in x.

    Attributes:
        name: Name in the legend.
        x, y: Coordinates of the points.
        color: Number of its colour; those from `COLORS` on are again the first ones.
        dashed: Whether the line is dashed.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    color: int = 0
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A position on the x axis, with its name for the legend."""

    name: str
    x: float


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    start: float
    length: float
    log: bool = False
    whole: bool = False

    def at(self, value: float) -> float:
        share = (self._place(value) - self._place(self.low)) / (
            self._place(self.high) - self._place(self.low)
        )
        return self.start + self.length * share

    def _place(self, value: float) -> float:
        return math.log10(max(value, self.low)) if self.log else value

    def ticks(self) -> list[float]:
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            choices = [
                [step * 10.0**power for power in powers for step in steps]
                for steps in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), range(1, 10))
            ]
            inside = [[v for v in values if self.low <= v <= self.high] for values in choices]
            return next((values for values in inside if len(values) >= _LOG_TICKS), inside[-1])
        rough = (self.high - self.low) / _TICKS
        if self.whole:
            rough = max(rough, 1.0)
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(step * power for step in (1, 2, 5, 10) if step * power >= rough)
        first = math.ceil(self.low / step)
        return [number * step for number in range(first, math.floor(self.high / step) + 1)]


def lines(
    drawn: Sequence[Line],
    *,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    steps: bool = False,
    marks: Sequence[Mark] = (),
) -> str:
    """Return a chart of lines over one pair of axes; the y axis begins at 0.

    Where all values of y are whole numbers, so are those at the axis.

    Args:
        drawn: The lines.
        x_label: Label of the x axis, with its unit.
        y_label: Label of the y axis, with its unit.
        log_x: Whether the x axis is logarithmic.
        steps: Whether a value holds until the next point.
        marks: Positions to mark on the x axis.
    """
    drawn = [line for line in drawn if len(line.x)]
    if not drawn:
        return "<p>Nothing to draw.</p>"
    low = min([*(line.x[0] for line in drawn), *(mark.x for mark in marks)])
    high = max([*(line.x[-1] for line in drawn), *(mark.x for mark in marks)])
    if high <= low:
        low, high = (low / 2, high * 2) if low > 0 else (low, low + 1)
    if log_x:
        low *= _BEFORE  # that a line that begins with a step shows it
    across = _Axis(low, high, _LEFT, _WIDTH - _LEFT - _RIGHT, log_x)
    top = max(max(line.y) for line in drawn) or 1.0
    up = _up(top, whole=all(value % 1 == 0 for line in drawn for value in line.y))
    parts = [
        *_grid(across, up, x_label, y_label),
        *(_path(line, across, up, steps=steps) for line in drawn),
        *(_mark(across.at(mark.x)) for mark in marks),
    ]
    axes = {
        "x": x_label,
        "low": low,
        "high": high,
        "log": log_x,
        "left": _LEFT,
        "width": across.length,
        "top": up.high,
        "bottom": up.start,
        "height": -up.length,
    }
    legend = [_key(line.name, _color(line.color), dashed=line.dashed) for line in drawn]
    legend += [_key(mark.name, "allowed", dashed=True) for mark in marks]
    return framed(parts, legend, f" data-axes='{escape(json.dumps(axes), quote=True)}'")


def bars(groups: Sequence[tuple[str, dict[int, float]]], *, x_label: str, y_label: str) -> str:
    """Return a bar chart of shares by integer, with one color per group, side by side."""
    numbers = sorted({number for _, shares in groups for number in shares})
    if not numbers:
        return "<p>Nothing to draw.</p>"
    top = max(max(shares.values(), default=0.0) for _, shares in groups) or 1.0
    places = max(numbers[-1] - numbers[0] + 1, _BARS)
    span = (numbers[0] - 0.5, numbers[0] + places - 0.5)
    across = _Axis(*span, _LEFT, _WIDTH - _LEFT - _RIGHT, whole=True)
    up = _up(top)
    width = across.length / places / len(groups) * 0.9
    drawn = []
    for place, (name, shares) in enumerate(groups):
        for number, share in sorted(shares.items()):
            x = across.at(number) + (place - len(groups) / 2) * width
            says = escape(f"{name}: {share:.4g} of {number}", quote=True)
            drawn.append(
                f'<rect x="{x:.1f}" y="{up.at(share):.1f}" width="{max(width, 1):.1f}" '
                f'height="{up.start - up.at(share):.1f}" class="column {_color(place)}">'
                f"<title>{says}</title></rect>"
            )
    legend = [_key(name, _color(place)) for place, (name, _) in enumerate(groups)]
    return framed([*_grid(across, up, x_label, y_label), *drawn], legend)


def standalone(drawn: Sequence[Line], legend: tuple[float, float], **labels: str | bool) -> str:
    """Return a line chart as its own SVG file, with the legend inside.

    Args:
        drawn: The lines.
        legend: Position of the legend's first line.
        labels: As for `lines`.
    """
    inside = lines(drawn, **labels).partition(">")[2].partition("</svg>")[0]  # type: ignore[arg-type]
    names = "".join(
        f'<text x="{legend[0]}" y="{legend[1] + 16 * row}" class="name {_color(line.color)}">'
        f"{escape(line.name)}</text>"
        for row, line in enumerate(drawn)
    )
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} width="{1.5 * _WIDTH:g}">'
        f'<style>{STYLE}</style><rect class="back" width="{_WIDTH}" height="{_HEIGHT}"/>'
        f"{inside}{names}</svg>\n"
    )


def _up(top: float, *, whole: bool = False) -> _Axis:
    return _Axis(0.0, top * 1.05, _HEIGHT - _BOTTOM, _TOP + _BOTTOM - _HEIGHT, whole=whole)


def _color(number: int) -> str:
    return f"c{number % COLORS}"


def _path(line: Line, across: _Axis, up: _Axis, *, steps: bool) -> str:
    every = max(1, len(line.x) // _POINTS)
    kept = sorted({*range(0, len(line.x), every), len(line.x) - 1})
    points = [(across.at(line.x[i]), up.at(line.y[i])) for i in kept]
    x, y = points[0]
    parts = [f"M{x:.1f} {y:.1f}"]
    parts += [f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f} {y:.1f}" for x, y in points[1:]]
    dash = ' stroke-dasharray="5 3"' if line.dashed else ""
    data_name = f'data-name="{escape(line.name, quote=True)}"'
    style = f'class="series {_color(line.color)}"{dash}'
    return f'<path {data_name} d="{"".join(parts)}" {style}/>'


def _mark(x: float) -> str:
    return f'<path class="limit" d="M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>'


def _grid(across: _Axis, up: _Axis, x_label: str, y_label: str) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = [f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>']
    for value in across.ticks():
        x = across.at(value)
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{value:,.10g}</text>'
        )
        parts.append(f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>')
    for value in up.ticks():
        y = up.at(value)
        parts.append(
            f'<text x="{_LEFT - 5}" y="{y + 3:.1f}" text-anchor="end">{value:,.10g}</text>'
        )
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>')
    middle = (_TOP + bottom) / 2
    parts.append(f'<text x="{right}" y="{_HEIGHT - 4}" text-anchor="end">{escape(x_label)}</text>')
    turned = f'transform="rotate(-90 12 {middle})" text-anchor="middle"'
    parts.append(f'<text x="12" y="{middle}" {turned}>{escape(y_label)}</text>')
    return parts


def _key(name: str, color: str, *, dashed: bool = False) -> str:
    return f'<span class="key {color}{" dashed" if dashed else ""}">{escape(name)}</span>'


def framed(
    parts: Sequence[str],
    legend: Sequence[str],
    attributes: str = "",
    size: tuple[float, float] = (_WIDTH, _HEIGHT),
) -> str:
    """Return the drawn parts as one chart for a page, with the legend below."""
    box = f'viewBox="0 0 {size[0]:g} {size[1]:g}"'
    return f'<svg {box}{attributes}>{"".join(parts)}</svg><p class="legend">{"".join(legend)}</p>'
