"""The page in a browser, with what nobody should have written."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.chromium import page
from tests.scaler.test_sync_api import TOKEN, scaler
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.scaler.test_sync_api import Caller

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("live")]  # the other browser is there

MARKUP = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"


@contextmanager
def serving(folder: Path) -> Iterator[Caller]:
    """A scaler without rounds, in a thread."""
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


def test_whatever_is_written_is_text(tmp_path: Path) -> None:
    """Markup in what the page is told is shown as it was written, and does nothing."""
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
