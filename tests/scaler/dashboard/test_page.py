"""The dashboard page in a browser, also with hostile content."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpool.log_histogram import bin_of
from scaler.control.class_function import Status
from tests.chromium import page
from tests.scaler.test_sync_api import LABELS, TOKEN, scaler
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.scaler.test_sync_api import Caller

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("live")]  # the other browser is there

PICTURES = os.environ.get("CARPOOL_PICTURES", "")  # where to leave the pictures
MARKUP = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"


@contextmanager
def serving(folder: Path) -> Iterator[Caller]:
    """Run a scaler without rounds in a thread."""
    found: list[Caller] = []
    over = threading.Event()

    async def scene() -> None:
        async with scaler(folder) as caller:
            found.append(caller)
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(scene(),))
    thread.start()
    try:
        wait_until(lambda: found, what="the scaler")
        yield found[0]
    finally:
        over.set()
        thread.join()


def test_markup_is_shown_as_text(tmp_path: Path) -> None:
    """Markup in notes and decisions is shown as text and has no effect."""
    with serving(tmp_path) as caller, page(tmp_path / "profile") as tab:
        controller = caller.functions.find("echo")
        assert controller is not None
        controller.follow(controller.first_plan(), 0.0)
        controller.notes = [MARKUP]
        controller.remarks = [MARKUP]
        controller.decisions.add(MARKUP, 0.0)
        tab.open(f"http://{caller.address}/#%E0%A4%A")  # which is no text, either
        wait_until(lambda: tab.value("document.getElementById('login')?.hidden") is False)
        tab.value(f"sessionStorage.setItem('carpool-token', '{TOKEN}'); location.reload()")
        wait_until(lambda: MARKUP in tab.text("#troubles"), what="the note as it was written")
        wait_until(lambda: MARKUP in tab.text("#decisions"), what="the decision")
        assert MARKUP in tab.text("#explain")
        assert 0 == tab.value("document.querySelectorAll('main img, main script').length")
        assert "Carpool" == tab.value("document.title")
        assert [] == [text for text in tab.complaints if " 401 " not in text]


def test_versions_side_by_side(tmp_path: Path) -> None:
    """A function and its canaries are shown with their shares and results."""
    with serving(tmp_path) as caller, page(tmp_path / "profile") as tab:
        labels = {**LABELS, "com.carpool.canary": "new=25%,fixed=5%"}
        listed = {
            name: Status.of({"name": name, "image": "x", "replicas": 1, "labels": own})
            for name, own in {"echo": labels, "new": LABELS}.items()
        }
        caller.functions.observe(listed)
        caller.sampler.sample()
        said = {"done": 90, "late": 9, "refused": 10}
        for name in listed:
            controller = caller.functions.find(name)
            assert controller is not None
            controller.reports.outcomes.update(said)
            controller.reports.latency.update({bin_of(0.02): 90})
        caller.sampler.sample()
        tab.open(f"http://{caller.address}/#echo", width=390)
        wait_until(lambda: tab.value("document.getElementById('login')?.hidden") is False)
        tab.value(f"sessionStorage.setItem('carpool-token', '{TOKEN}'); location.reload()")
        wait_until(lambda: "not scaled" in tab.text("#versions"), what="the comparison")
        rows = tab.value(
            "[...document.querySelectorAll('#versions tbody tr')].map("
            "row => [...row.cells].map(cell => cell.textContent))"
        )
        stable, canary, fixed = rows
        assert [["echo", "70 %", "100"], ["new", "25 %", "100"]] == [stable[:3], canary[:3]]
        assert ["fixed", "5 %", "not scaled"] == fixed[:3]
        assert ["9 %", "10 %", "0 %"] == canary[7:10]
        assert canary[6].endswith(" ms")
        assert tab.text("#versions-title").startswith("Versions, since ")
        assert tab.value("document.documentElement.scrollWidth") <= 390
        tab.open(f"http://{caller.address}/#new")
        wait_until(lambda: "new" == tab.text("#name"), what="a function without canaries")
        assert tab.value("document.getElementById('versions').hidden") is True
        assert [] == [text for text in tab.complaints if " 401 " not in text]


def test_page_without_functions_or_load(tmp_path: Path) -> None:
    """Without functions or load the page says so, and plots without data are empty."""
    pictures = Path(PICTURES) if PICTURES else tmp_path
    with serving(tmp_path) as caller, page(tmp_path / "profile") as tab:
        tab.open(f"http://{caller.address}/")
        wait_until(lambda: tab.value("document.getElementById('login')?.hidden") is False)
        tab.picture(pictures / "dashboard-login.png", whole=True)
        tab.value(f"sessionStorage.setItem('carpool-token', '{TOKEN}'); location.reload()")
        wait_until(lambda: "echo" == tab.text("#name"), what="a function that nobody has called")
        said = tab.text("main")
        assert not {"undefined", "NaN", "null", "Infinity"} & set(re.findall(r"\w+", said)), said
        assert "No plan yet" in said
        assert "No decisions yet" in said
        tab.picture(pictures / "dashboard-without-load.png", whole=True)
        caller.functions.observe({})
        wait_until(lambda: "no function has a scaling policy" in tab.text("#state"), what="none")
        assert tab.value("document.getElementById('function').hidden") is True
        tab.picture(pictures / "dashboard-empty.png", whole=True)
        assert [] == [text for text in tab.complaints if " 401 " not in text]
