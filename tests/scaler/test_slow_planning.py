"""Planning that takes long is reported, with the line that it is at."""

from __future__ import annotations

import re
import threading

from scaler.slow_planning import reported_if_slow
from tests.waiting import HANG_S


def test_slow_planning_is_reported_with_its_line() -> None:
    """The report has the innermost calls of the thread that plans."""
    texts: list[str] = []
    reported = threading.Event()

    def report(text: str) -> None:
        texts.append(text)
        reported.set()

    def propose() -> None:
        reported.wait(HANG_S)

    with reported_if_slow(report, 0.01):
        propose()
    (text,) = texts
    place = r"test_slow_planning\.py:\d+"
    assert re.search(rf"0\.01 s, and is at .*{place} \(propose\)", text)
    assert text.endswith("it is slow, or does not return; no plan changes meanwhile")


def test_planning_within_the_limit_is_not_reported() -> None:
    """No thread is left behind."""
    texts: list[str] = []
    before = threading.active_count()
    with reported_if_slow(texts.append, HANG_S):
        assert threading.active_count() == before + 1
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(HANG_S)
    assert (texts, threading.active_count()) == ([], before)
