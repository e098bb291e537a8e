"""Heat maps: cell contents and well-formed drawings."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from simulator.reports.heat_map import HeatMap, Tile, chart, picture

SVG = "{http://www.w3.org/2000/svg}"
DRAWN = HeatMap(
    ["one", "<two>"],
    [
        ("first", [Tile("1.00", 0, "one is pale", best=True), Tile("9.99", 5, "two is dark")]),
        ("second", [Tile("-", None, "nothing ran"), Tile("2.00", 2, "two & more")]),
    ],
    ["to 1.1", "1.5", "2.5", "5", "10", "more"],
    "cheapest",
)


def test_every_cell_has_text_and_title() -> None:
    """Each cell has its text and title, a colour if it has a number, and escaped names."""
    drawing = re.search(r"<svg.*</svg>", chart(DRAWN), re.DOTALL)
    assert drawing is not None
    root = ET.fromstring(drawing[0])
    cells = {
        cell.findtext("title"): (cell.findtext("text"), rect.get("class"))
        for cell in root.iter("g")
        if (rect := cell.find("rect")) is not None
    }
    assert {
        "one is pale": ("1.00", "tile level-0"),
        "two is dark": ("9.99", "tile level-5"),
        "nothing ran": ("-", "tile none"),
        "two & more": ("2.00", "tile level-2"),
    } == cells
    texts = [text.text for text in root.iter("text")]
    assert {"one", "<two>", "first", "second"} <= set(texts)
    assert 1 == sum(rect.get("class") == "tile best none" for rect in root.iter("rect"))


def test_cells_lie_inside_drawing_without_overlap() -> None:
    """Cells lie inside the drawing and do not overlap."""
    drawing = re.search(r"<svg.*</svg>", chart(DRAWN), re.DOTALL)
    assert drawing is not None
    root = ET.fromstring(drawing[0])
    width, height = (float(end) for end in root.attrib["viewBox"].split()[2:])
    tiles = [r for r in root.iter("rect") if "best" not in r.get("class", "")]
    boxes = [[float(r.attrib[k]) for k in ("x", "y", "width", "height")] for r in tiles]
    assert all(x + w <= width and y + h <= height for x, y, w, h in boxes)
    assert 4 == len({(x, y) for x, y, _, _ in boxes})


def test_picture_has_legend_and_styles() -> None:
    """A picture has the charts' titles, a legend and styles for both colour schemes."""
    root = ET.fromstring(picture([("Cost", DRAWN), ("Missed", DRAWN)]))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"Cost", "Missed", "to 1.1", "cheapest"} <= set(texts)
    style = root.findtext(f"{SVG}style") or ""
    assert "prefers-color-scheme: dark" in style
    assert all(f".level-{level}{{" in style for level in range(6))


def test_empty_chart_says_so() -> None:
    """An empty chart says so."""
    assert "Nothing to draw" in chart(HeatMap([], [], []))
