"""The page in a browser, on the embedded stack with real processes and load."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from tests.chromium import Page, page
from tests.live.stack import load, stack, write_function
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

# Where to leave the pictures for docs/scaler.md; without it they go with the test's own folder.
PICTURES = os.environ.get("CARPOOL_PICTURES", "")


def log_in(tab: Page, token: str) -> None:
    """Type the token and press the button."""
    wait_until(
        lambda: tab.value("document.getElementById('login')?.hidden") is False, what="the form"
    )
    tab.value(f"document.getElementById('token').value = '{token}'")
    tab.value("document.querySelector('#login button').click()")


def drawn(tab: Page) -> list[str]:
    """What each plot says it shows."""
    script = "[...document.querySelectorAll('figure svg')].map(s => s.getAttribute('aria-label'))"
    return list(tab.value(script))


def points(tab: Page, number: int) -> int:
    """How many points the first line of a plot has."""
    figure = f"document.querySelectorAll('figure')[{number}]"
    return int(tab.value(f"({figure}.querySelector('path')?.getAttribute('d') || '').length"))


def test_the_page_shows_a_function_under_load(tmp_path: Path) -> None:
    """With the token it shows load, instances and latencies; a reload shows the past, too."""
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
        assert "echo" == tab.text("#functions tbody td")

        script = ((40, 12.0), (300, 15.0), (120, 10.0))
        thread = threading.Thread(target=_play, args=(running.url, script))
        thread.start()
        wait_until(lambda: "of infless" in tab.text("#plan-title"), what="a plan")
        wait_until(lambda: any("p99 " in t and "ms" in t for t in drawn(tab)), what="latencies")
        wait_until(lambda: running.ready() >= 2, what="more instances")
        thread.join()

        said = drawn(tab)
        titles = [text.partition(":")[0] for text in said]
        assert ["Rate", "Instances by class", "Batch size", "Latency"] == titles[:4]
        assert ["Missed objectives", "Resources held", "Cold starts"] == titles[4:]
        assert all("\N{EN DASH}" not in text for text in said[:2]), said
        assert "objective, 500 ms" in tab.text("#plots")
        assert "b8-c1" in tab.text("#plan")
        assert "openfaas, not followed" in tab.text("#shadow")
        assert tab.text("#decisions li")
        tab.picture(pictures / "dashboard.png")
        before = points(tab, 0)

        tab.open(running.scaler + "/")  # the tab still has the token
        wait_until(lambda: "live" == tab.text("#state"), what="the page again")
        wait_until(lambda: points(tab, 0) >= before, what="the past")
        tab.open(running.scaler + "/", dark=True)
        wait_until(lambda: "live" == tab.text("#state"), what="the page in the dark")
        tab.picture(pictures / "dashboard-dark.png")
        assert [] == [text for text in tab.complaints if " 401 " not in text]


def _play(url: str, script: tuple[tuple[float, float], ...]) -> None:
    """Load: so many requests a second for so long, one after the other."""
    for rate_rps, duration_s in script:
        asyncio.run(load(url, rate_rps, duration_s))
