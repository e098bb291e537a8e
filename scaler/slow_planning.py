"""Reports a round of planning that takes long, with the line that it is at.

Without this, a scaling policy that does not return is only silence.
"""

from __future__ import annotations

import sys
import threading
import traceback
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["LIMIT_S", "reported_if_slow"]

LIMIT_S = 30.0
_CALLS = 3  # innermost ones, that are shown


@contextmanager
def reported_if_slow(report: Callable[[str], None], limit_s: float = LIMIT_S) -> Iterator[None]:
    """Report, once, if the calling thread is still in this context after the time limit.

    Args:
        report: Called in another thread, with a text.
        limit_s: Time limit in seconds.
    """
    planning = threading.get_ident()

    def look() -> None:
        at = _innermost(planning)
        report(
            f"planning has taken {limit_s:g} s, and is at {at}: it is slow, or does not return; no "
            "plan changes meanwhile"
        )

    timer = threading.Timer(limit_s, look)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _innermost(thread: int) -> str:
    frames = sys._current_frames()  # noqa: SLF001  documented, in spite of its name
    calls = reversed(traceback.extract_stack(frames.get(thread))[-_CALLS:])
    return ", called from ".join(
        f"{PurePath(c.filename).name}:{c.lineno} ({c.name})" for c in calls
    )
