"""Heat maps of the matrix: cell colours, and the files that the command writes."""

from __future__ import annotations

import dataclasses
import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from carpool.errors import ConfigError
from simulator.matrix import command
from simulator.matrix.report import COST, MISSED, maps
from simulator.matrix.rows import Row
from tests.chromium import page
from tests.waiting import wait_until

PICTURES = os.environ.get("CARPOOL_PICTURES", "")  # where to leave the pictures


def row(cell: str, policy: str, cost: float, missed: float) -> Row:
    """Return a row with a bound of one."""
    return Row(cell, 60.0, 1, policy, 100, cost, 1.0, missed, 1.0, 50.0, 0.1, 1.0)


ROWS = [
    row("steady/gpu/tight/reserved", "one", 1.05, 0.2),
    row("steady/gpu/tight/reserved", "two", 2.0, 0.01),
    row("bursty/gpu/loose/reserved", "one", 120.0, 0.0),
    dataclasses.replace(row("bursty/gpu/loose/reserved", "two", 0.0, 1.0), failure="no plan"),
]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Return a file of rows."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(dataclasses.asdict(each)) + "\n" for each in ROWS))
    return path


def test_heat_map_outlines_cheapest_policy_that_holds_in_each_cell() -> None:
    """The cheapest policy that holds is outlined; a failed one has no cost and misses all."""
    found = maps(ROWS)
    cost, missed = found[COST], found[MISSED]
    assert ["one", "two"] == list(cost.columns)
    assert ["steady gpu tight reserved", "bursty gpu loose reserved"] == [n for n, _ in cost.rows]
    assert [[("1.05", 0, False), ("2.00", 2, True)], [("120", 5, True), ("-", None, False)]] == [
        [(tile.text, tile.level, tile.best) for tile in tiles] for _, tiles in cost.rows
    ]
    assert [[("20.00", 5), ("1.00", 2)], [("0.00", 0), ("100", 5)]] == [
        [(tile.text, tile.level) for tile in tiles] for _, tiles in missed.rows
    ]
    assert "one, steady/gpu/tight/reserved: 1.05 times the bound, 20.00% missed" == (
        cost.rows[0][1][0].tooltip
    )
    assert "gpu tight reserved" == maps(ROWS, short=True)[COST].rows[0][0]


def test_page_and_picture_are_made_from_kept_rows(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Page and picture are made from kept rows without a run."""
    before = kept.read_text()
    report, picture = tmp_path / "out.html", tmp_path / "out.svg"
    flags = ["--out", str(kept), "--only-kept", "--report", str(report), "--picture", str(picture)]
    assert 0 == command.main(flags)
    assert "2 cells, 1 seeds" in capsys.readouterr().out
    assert kept.read_text() == before
    text = report.read_text()
    assert text.index("<h2>steady</h2>") < text.index("<h2>bursty</h2>")
    assert 4 == text.count("<figure>")
    assert "svg" in ET.parse(picture).getroot().tag
    assert 0 == command.main([*flags, "--policy", "one", "--trace", "bursty", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert [("one", 1)] == [(each["policy"], each["cells"]) for each in document["policies"]]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--only-kept"], "--out FILE.jsonl"),
        (["--report", "no/such/folder/out.html"], "a folder that exists"),
        (["--picture", "no/such/folder/out.svg"], "a folder that exists"),
    ],
)
def test_invalid_output_files_are_reported_before_running(flags: list[str], said: str) -> None:
    """Invalid output files are reported before anything is run."""
    with pytest.raises(ConfigError, match=said):
        command.main(flags)


def test_missing_rows_are_error(kept: Path) -> None:
    """Missing rows are an error instead of an empty page."""
    with pytest.raises(ConfigError, match="a file with rows"):
        command.main(["--out", str(kept), "--only-kept", "--trace", "diurnal"])


@pytest.mark.slow
@pytest.mark.xdist_group("live")
def test_heat_maps_are_readable_on_phone_and_in_dark_mode(kept: Path, tmp_path: Path) -> None:
    """No text is cut off, numbers contrast with their cells, and the browser reports no problem."""
    report, pictures = tmp_path / "out.html", Path(PICTURES) if PICTURES else tmp_path
    assert 0 == command.main(["--out", str(kept), "--only-kept", "--report", str(report)])
    cut = (
        "[...document.querySelectorAll('figure svg')].flatMap(svg => {"
        "const box = svg.getBoundingClientRect();"
        "return [...svg.querySelectorAll('text')].filter(text => {"
        "const own = text.getBoundingClientRect();"
        "return own.left < box.left || own.right > box.right || own.top < box.top"
        "}).map(text => text.textContent)})"
    )
    ink = (
        "getComputedStyle(document.querySelector('rect.level-5').nextElementSibling).fill + ' on ' "
        "+ getComputedStyle(document.querySelector('rect.level-5')).fill"
    )
    with page(tmp_path / "profile") as tab:
        for name, dark, width in (
            ("wide", False, 1180),
            ("dark", True, 1180),
            ("phone", False, 390),
        ):
            tab.open(f"file://{report}", dark=dark, width=width)
            wait_until(lambda: tab.value("document.readyState") == "complete", what="the page")
            assert tab.value("document.documentElement.scrollWidth") <= width
            assert [] == tab.value(cut), name
            assert "rgb(255, 255, 255) on rgb(140, 35, 24)" == tab.value(ink)
            tab.picture(pictures / f"matrix-{name}.png")
        assert [] == tab.complaints
