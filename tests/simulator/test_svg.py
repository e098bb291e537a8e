"""Charts: where things are, and what is written beside them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from simulator.svg import Line, bars, lines


def labels(chart: str) -> list[str]:
    """What is written in a chart."""
    drawing = re.search(r"<svg.*</svg>", chart, re.DOTALL)
    assert drawing is not None
    return [element.text or "" for element in ET.fromstring(drawing[0]).iter("text")]


def test_axes_have_round_numbers() -> None:
    """And say what they are of."""
    found = labels(lines([Line("a", [0, 47], [0.0, 0.9])], x_label="time, s", y_label="share"))
    assert {"0", "10", "20", "30", "40", "time, s", "share"} <= set(found)


def test_a_logarithmic_axis_has_enough_numbers() -> None:
    """Also within a power of ten."""
    found = labels(
        lines([Line("a", [110, 340], [0.0, 1.0])], x_label="ms", y_label="share", log_x=True)
    )
    assert {"100", "200", "300"} <= set(found)


def test_what_is_counted_has_whole_numbers() -> None:
    """However few there are; and the numbers of a logarithmic axis do not touch."""
    line = Line("a", [30, 200], [0.0, 1.0])
    found = labels(lines([line], x_label="ms", y_label="instances", log_x=True))
    assert ["30", "50", "70", "100", "150", "200", "0", "1", "ms", "instances"] == found


def test_bars_stand_on_whole_numbers() -> None:
    """However few there are."""
    found = labels(bars([("a", {1: 1.0}), ("b", {2: 1.0})], x_label="size", y_label="share"))
    assert {"1", "2", "3"} <= set(found)
    assert "1.5" not in found


def test_names_are_not_markup() -> None:
    """Whatever a policy is called."""
    assert "<b>" not in lines([Line("<b>", [0, 1], [0, 1])], x_label="x", y_label="y")


@pytest.mark.parametrize("line", [Line("a", [], []), Line("a", [5.0], [0.0])])
def test_little_to_draw_is_no_error(line: Line) -> None:
    """No point, or one at 0."""
    for log_x in (False, True):
        assert lines([line], x_label="x", y_label="y", log_x=log_x)
    assert bars([("a", {})], x_label="x", y_label="y")
