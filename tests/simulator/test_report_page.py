"""The simulation report in a real browser."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from simulator import command
from simulator.reports.comparison_table import MEANINGS, ROWS
from tests.chromium import Page, page
from tests.simulator.test_command import POLICY, SCENARIO
from tests.waiting import wait_until

PHONE = 390
PICTURES = os.environ.get("CARPOOL_PICTURES", "")  # where to leave the pictures


# In how many lines each head of the table is written; the first is empty.
LINES = """
[...document.querySelectorAll('th')].map(head => {
  const text = document.createRange(); text.selectNodeContents(head);
  return text.getClientRects().length })
"""
EMPTY = """\
models: {toy: {linear: {base_ms: 20, per_item_ms: 2}}}
functions:
  - {name: echo, model: toy, slo_ms: 500, apps: [{name: web, arrivals: {trace: nothing.csv}}]}
horizon_s: 10
"""


def test_every_table_row_has_explanation() -> None:
    """Every row of the table has an explanation, and no other explanation exists."""
    assert ROWS.keys() == MEANINGS.keys()


def ready(tab: Page) -> None:
    """Wait until the page and its script are loaded."""
    wait_until(lambda: tab.value("document.readyState") == "complete", what="the report")


def hover(tab: Page, figure: int) -> str:
    """Return the tooltip at the middle of a chart."""
    tab.value(f"document.querySelectorAll('figure')[{figure}].scrollIntoView({{block: 'center'}})")
    box = tab.value(
        f"(() => {{ const b = document.querySelectorAll('figure svg')[{figure}]"
        ".getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2] })()"
    )
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    return tab.text("#tip")


@pytest.mark.slow
@pytest.mark.xdist_group("live")
def test_report_is_readable_on_phone_and_shows_values_under_pointer(tmp_path: Path) -> None:
    """No text is cut off, objectives are marked, and values are shown under the pointer."""
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(SCENARIO.replace("prices: {", "prices: {currency: EUR, "))
    report, pictures = tmp_path / "out.html", Path(PICTURES) if PICTURES else tmp_path
    flags = ["--policy", POLICY, "--policy", "openfaas", "--report", str(report)]
    assert 0 == command.main([str(scenario), *flags])
    with page(tmp_path / "profile") as tab:
        for name, dark, width in (
            ("wide", False, 1180),
            ("dark", True, 1180),
            ("phone", False, PHONE),
        ):
            tab.open(f"file://{report}", dark=dark, width=width)
            ready(tab)
            assert tab.value("document.documentElement.scrollWidth") <= width
            said = hover(tab, 0)
            assert said.startswith("latency, ms: ")
            assert f"{POLICY}: " in said
            tab.picture(pictures / f"report-{name}.png", whole=True)
        assert [0, 1, 1] == tab.value(LINES)  # no policy's name is broken
        assert "requests/s" not in hover(tab, 3)
        assert "objective of web, 200ms" in tab.text(".legend")
        assert "objective of vr, 100ms" in tab.text(".legend")
        assert "Costs are in EUR, billing pay-per-use: cpu_core_s 0.0001." in tab.text("body")
        assert "EUR" in tab.text("figure:nth-of-type(4)")
        assert [] == tab.complaints


@pytest.mark.slow
@pytest.mark.xdist_group("live")
def test_a_report_without_requests_says_so(tmp_path: Path) -> None:
    """Charts without data say so, and the others are drawn."""
    (tmp_path / "nothing.csv").write_text("start_s,requests_per_minute\n0,0\n")
    (tmp_path / "scenario.yaml").write_text(EMPTY)
    report, pictures = tmp_path / "out.html", Path(PICTURES) if PICTURES else tmp_path
    flags = ["--policy", "infless", "--policy", "openfaas", "--report", str(report)]
    assert 0 == command.main([str(tmp_path / "scenario.yaml"), *flags])
    with page(tmp_path / "profile") as tab:
        tab.open(f"file://{report}", width=PHONE)
        ready(tab)
        assert "Nothing to draw." in tab.text("figure:nth-of-type(1)")
        assert "all applications: 0" in hover(tab, 0)
        assert tab.value("document.documentElement.scrollWidth") <= PHONE
        tab.picture(pictures / "report-empty.png", whole=True)
        assert [] == tab.complaints


def test_rate_is_drawn_only_while_requests_arrive(tmp_path: Path) -> None:
    """A load that ends after six of ten seconds is drawn to end there."""
    (tmp_path / "nothing.csv").write_text("start_s,requests_per_minute\n0,6000\n6,0\n")
    (tmp_path / "scenario.yaml").write_text(EMPTY)
    report = tmp_path / "out.html"
    flags = ["--policy", "openfaas", "--report", str(report)]
    assert 0 == command.main([str(tmp_path / "scenario.yaml"), *flags])
    drawn = re.search(r'data-name="all applications" d="M(\S+) \S+?H([^"]+)"', report.read_text())
    assert drawn
    steps = [step.split("V") for step in drawn[2].split("H")]  # where it ends, and what comes then
    zero, end = steps[-1][1], float(steps[-1][0])
    ends_at = next(float(x) for x, y in steps if y == zero)
    start = float(drawn[1])
    assert start + 0.6 * (end - start) == pytest.approx(ends_at, abs=0.2)


@pytest.mark.parametrize(("prices", "drawn"), [("", 0), ("prices: {cpu_core_s: 0.1}\n", 1)])
def test_costs_are_drawn_if_there_are_prices(tmp_path: Path, prices: str, drawn: int) -> None:
    """Without prices there is no chart of costs, which would be a line at zero."""
    (tmp_path / "nothing.csv").write_text("start_s,requests_per_minute\n0,600\n")
    (tmp_path / "scenario.yaml").write_text(EMPTY + prices)
    report = tmp_path / "out.html"
    flags = ["--policy", "openfaas", "--report", str(report)]
    assert 0 == command.main([str(tmp_path / "scenario.yaml"), *flags])
    assert drawn == report.read_text().count("Cost so far")


def test_report_needs_neither_network_nor_script(tmp_path: Path) -> None:
    """The page loads nothing, and its charts are drawn even if its script does not run."""
    (tmp_path / "nothing.csv").write_text("start_s,requests_per_minute\n0,600\n")
    (tmp_path / "scenario.yaml").write_text(EMPTY)
    report = tmp_path / "out.html"
    flags = ["--policy", "openfaas", "--report", str(report)]
    assert 0 == command.main([str(tmp_path / "scenario.yaml"), *flags])
    text = report.read_text()
    assert [] == re.findall(r"\b(?:src|href)=|url\(|@import|\bfetch\(", text)
    drawn = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert 5 == drawn.count("<figure>") == drawn.count("<svg ")
    assert {"latency, ms", "requests/s", "instances"} <= set(re.findall(r">([^<]+)</text>", drawn))
