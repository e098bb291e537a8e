"""The dashboard in a browser, on the embedded stack with real processes and load."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chromium import Page, page
from tests.live.load import INTERACTIVE, Steady
from tests.live.stack import stack, write_function
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# Where to leave the pictures for docs/scaler.md; without it they go with the test's own folder.
PICTURES = os.environ.get("CARPOOL_PICTURES", "")
PHONE = 390
CLOCK = re.compile(r"\d\d:\d\d")
PICTURE_S = 10.0 if PICTURES else 0.0  # of each load, that plots show more than points


def log_in(tab: Page, token: str) -> None:
    """Type the token and press the button."""
    wait_until(
        lambda: tab.value("document.getElementById('login')?.hidden") is False, what="the form"
    )
    tab.value(f"document.getElementById('token').value = '{token}'")
    tab.value("document.querySelector('#login button').click()")


def drawn(tab: Page) -> list[str]:
    """Return the description of each plot."""
    script = "[...document.querySelectorAll('figure svg')].map(s => s.getAttribute('aria-label'))"
    return list(tab.value(script))


def nothing_is_missing(said: list[str]) -> bool:
    """Return whether each plot shows data of everything that it is about."""
    return all("\N{EN DASH}" not in text for text in said)


def pointed_at(tab: Page) -> str:
    """Return the tooltip at the end of the first plot."""
    box = tab.value(
        "(() => { const b = document.querySelector('figure svg').getBoundingClientRect();"
        " return [b.right - 8, b.y + b.height / 2] })()"
    )
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    wait_until(lambda: tab.text("#tip"), what="the values under the pointer")
    return tab.text("#tip")


def colours(tab: Page) -> dict[str, set[str]]:
    """Return the colours of each class, ready and loading, in the plot of instances."""
    keys = "[...document.querySelectorAll('#plots figure:nth-of-type(2) .key')]"
    found: dict[str, set[str]] = {}
    for name, kinds in tab.value(f"{keys}.map(key => [key.textContent, key.className])"):
        found.setdefault(name.removesuffix(", loading"), set()).add(kinds.split()[1])
    return found


def points(tab: Page, number: int) -> int:
    """Return the number of points in the first line of a plot."""
    figure = f"document.querySelectorAll('figure')[{number}]"
    return int(tab.value(f"({figure}.querySelector('path')?.getAttribute('d') || '').length"))


def test_the_page_shows_a_function_under_load(tmp_path: Path) -> None:
    """With the token, the page shows load, instances and latencies, also after a reload."""
    pictures = Path(PICTURES) if PICTURES else tmp_path
    profile = tmp_path / "profile"
    (tmp_path / "stack").mkdir()
    write_function(tmp_path / "stack")
    with stack(tmp_path / "stack", "--shadow openfaas") as running, page(profile) as tab:
        tab.open(running.scaler + "/", height=840)
        log_in(tab, "wrong")
        wait_until(lambda: "not the scaler's token" in tab.text("#state"), what="the refusal")
        log_in(tab, running.token)
        wait_until(lambda: "live" == tab.text("#state"), what="the page")
        wait_until(lambda: "echo" == tab.text("#functions tbody td"), what="the function")

        loads: tuple[tuple[float, Callable[[], bool]], ...] = (
            (40, lambda: "of infless" in tab.text("#plan-title")),
            (300, lambda: running.ready() >= 2),
            (120, lambda: any("p99 " in text and "ms" in text for text in drawn(tab))),
        )
        for rate_rps, shown in loads:
            steady = Steady(running.url, rate_rps, INTERACTIVE)
            wait_until(shown, what=f"what {rate_rps} requests a second lead to")
            threading.Event().wait(PICTURE_S)
            steady.over()

        said = drawn(tab)
        titles = [text.partition(":")[0] for text in said]
        assert ["Rate", "Instances by class", "Batch size", "Latency"] == titles[:4]
        assert ["SLO violations", "Resources reserved", "Cold starts"] == titles[4:]
        wait_until(lambda: nothing_is_missing(drawn(tab)[:2]), what="rates and instances")
        by_class = colours(tab)
        assert min(len(by_class), 6) == len(set().union(*by_class.values()))  # there are six
        wait_until(lambda: "objective, 500 ms" in tab.text("#plots"), what="the objective")
        planned = running.explain()["plan"]["classes"][0]["name"]
        wait_until(lambda: planned in tab.text("#plan"), what="the plan")
        wait_until(lambda: "openfaas, shadow" in tab.text("#shadow"), what="the other plan")
        wait_until(lambda: tab.text("#decisions li"), what="decisions")
        tab.picture(pictures / "dashboard.png")
        before = points(tab, 0)

        tab.open(running.scaler + "/")  # the tab still has the token
        wait_until(lambda: "live" == tab.text("#state"), what="the page again")
        wait_until(lambda: points(tab, 0) >= before, what="the past")
        tab.open(running.scaler + "/", dark=True)
        wait_until(lambda: "live" == tab.text("#state"), what="the page in the dark")
        tab.picture(pictures / "dashboard-dark.png")
        tab.open(running.scaler + "/", width=PHONE)
        wait_until(lambda: "live" == tab.text("#state"), what="the page on a phone")
        wait_until(lambda: points(tab, 0) >= before, what="its plots")
        assert tab.value("document.documentElement.scrollWidth") <= PHONE
        assert tab.value("document.querySelector('#plan td').offsetWidth") > PHONE / 4
        axis = "document.querySelector('figure svg').textContent"
        wait_until(lambda: CLOCK.search(tab.value(axis)), what="the time of day")
        pointed = pointed_at(tab)
        assert CLOCK.match(pointed)
        assert "requests a second: " in pointed
        tab.picture(pictures / "dashboard-phone.png")
        assert [] == [text for text in tab.complaints if " 401 " not in text]
