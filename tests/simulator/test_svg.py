"""Charts: positions and labels."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from scaler.dashboard.sampler import FOLDER
from simulator.reports.svg import CHARTS, COLORS, Line, bars, lines


def labels(chart: str) -> list[str]:
    """Return the texts of a chart."""
    drawing = re.search(r"<svg.*</svg>", chart, re.DOTALL)
    assert drawing is not None
    return [element.text or "" for element in ET.fromstring(drawing[0]).iter("text")]


def test_axes_have_round_numbers() -> None:
    """Axes have round numbers and a label."""
    found = labels(lines([Line("a", [0, 47], [0.0, 0.9])], x_label="time, s", y_label="share"))
    assert {"0", "10", "20", "30", "40", "time, s", "share"} <= set(found)


def test_a_logarithmic_axis_has_enough_numbers() -> None:
    """A logarithmic axis has several numbers even within a power of ten."""
    found = labels(
        lines([Line("a", [110, 340], [0.0, 1.0])], x_label="ms", y_label="share", log_x=True)
    )
    assert {"100", "200", "300"} <= set(found)


def test_counts_have_whole_numbers() -> None:
    """Counts have whole numbers, and the numbers of a logarithmic axis do not overlap."""
    line = Line("a", [30, 200], [0.0, 1.0])
    found = labels(lines([line], x_label="ms", y_label="instances", log_x=True))
    assert ["30", "50", "70", "100", "150", "200", "0", "1", "ms", "instances"] == found


def test_bars_are_labelled_with_whole_numbers() -> None:
    """Bars have whole numbers below them."""
    found = labels(bars([("a", {1: 1.0}), ("b", {2: 1.0})], x_label="size", y_label="share"))
    assert {"1", "2", "3"} <= set(found)
    assert "1.5" not in found


def test_charts_and_page_have_the_same_colours() -> None:
    """Charts and the page number the same colours, and begin again after the last one."""
    assert {f"c{number}" for number in range(COLORS)} == set(re.findall(r"\.(c\d+) ", CHARTS))
    assert f"const COLOURS = {COLORS};" in (FOLDER / "drawing.js").read_text(encoding="utf-8")
    drawn = lines([Line("a", [0, 1], [0, 1], COLORS + 1)], x_label="x", y_label="y")
    assert 'class="series c1"' in drawn
    assert 'class="key c1"' in drawn


def test_names_are_escaped() -> None:
    """Names are escaped."""
    assert "<b>" not in lines([Line("<b>", [0, 1], [0, 1])], x_label="x", y_label="y")


@pytest.mark.parametrize("line", [Line("a", [], []), Line("a", [5.0], [0.0])])
def test_charts_with_few_points_are_drawn_without_error(line: Line) -> None:
    """Charts with no point, or one at zero, are drawn without error."""
    for log_x in (False, True):
        assert lines([line], x_label="x", y_label="y", log_x=log_x)
    assert bars([("a", {})], x_label="x", y_label="y")
