"""The report in a real browser."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simulator import command
from simulator.comparison_table import MEANINGS, ROWS
from tests.chromium import Page, page
from tests.simulator.test_command import POLICY, SCENARIO
from tests.waiting import wait_until

PHONE = 390
PICTURES = os.environ.get("CARPOOL_PICTURES", "")  # where to leave the pictures


def test_every_number_is_explained() -> None:
    """None that the table does not have, either."""
    assert ROWS.keys() == MEANINGS.keys()


def ready(tab: Page) -> None:
    """Wait until the page is there with its script."""
    wait_until(lambda: tab.value("document.readyState") == "complete", what="the report")


def hover(tab: Page, figure: int) -> str:
    """What is said of the middle of a chart."""
    tab.value(f"document.querySelectorAll('figure')[{figure}].scrollIntoView({{block: 'center'}})")
    box = tab.value(
        f"(() => {{ const b = document.querySelectorAll('figure svg')[{figure}]"
        ".getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2] })()"
    )
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    return tab.text("#tip")


@pytest.mark.slow
@pytest.mark.xdist_group("live")
def test_a_report_can_be_read_on_a_phone_and_pointed_at(tmp_path: Path) -> None:
    """Nothing is cut off, the objectives are marked, and values are said under the pointer."""
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
            tab.picture(pictures / f"report-{name}.png")
        assert "requests/s" not in hover(tab, 3)
        assert "objective of web, 200ms" in tab.text(".legend")
        assert "objective of vr, 100ms" in tab.text(".legend")
        assert "Costs are in EUR, billing pay-per-use: cpu_core_s 0.0001." in tab.text("body")
        assert "EUR" in tab.text("figure:nth-of-type(4)")
        assert [] == tab.complaints
