"""A second count of a function's requests, held against what its sidecars have counted.

Nobody counts at the same moment: a gateway counts when a request has been answered, and Prometheus
asks it every now and then. So a minute of theirs is compared with every minute of ours that began
up to some seconds earlier, and only what lies beyond all of these, by more than chance and errors
of the edges, is a disagreement.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import NamedTuple

__all__ = ["Recount"]

_WINDOW_S = 60.0
_LEAST_S = 30.0  # less says nothing yet
_LAG_S = 20.0
_PAUSE_S = 2.0  # from one comparison to the next
_SHARE, _FEW = 0.1, 20  # of the requests, and requests, that may differ


class _Seen(NamedTuple):
    """Totals at a moment."""

    at_s: float
    theirs: float
    ours: int


class Recount:
    """What one source has counted of one function's requests.

    Args:
        source: Its name, as in "the gateway".
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._seen: deque[_Seen] = deque()

    def note(self, theirs: float, ours: int, now_s: float) -> None:
        """So many were there by then, from the start of whoever counts."""
        if self._seen:
            last = self._seen[-1]
            if theirs < last.theirs or ours < last.ours:
                self._seen.clear()  # somebody has started anew
            elif now_s < last.at_s + _PAUSE_S:
                return
        self._seen.append(_Seen(now_s, theirs, ours))
        while len(self._seen) > 1 and self._seen[1].at_s <= now_s - _WINDOW_S - _LAG_S:
            self._seen.popleft()

    def said(self) -> list[str]:
        """The disagreement in a sentence, if there is one."""
        if not self._seen or not self._seen[-1].theirs:
            return []  # it does not count this function
        last = self._seen[-1]
        first_s = max(last.at_s - _WINDOW_S, self._seen[0].at_s + _LAG_S)
        if last.at_s - first_s < _LEAST_S:
            return []
        first = self._by(first_s)
        length_s = last.at_s - first.at_s
        theirs, ours = last.theirs - first.theirs, last.ours - first.ours
        stretches = [
            seen.ours - self._by(seen.at_s - length_s).ours
            for seen in self._seen
            if seen.at_s >= last.at_s - _LAG_S
        ]
        least, most = min(stretches) * (1 - _SHARE), max(stretches) * (1 + _SHARE)
        if least - _FEW <= theirs <= most + _FEW:
            return []
        why = (
            "reports of some of its sidecars do not arrive here"
            if theirs > ours
            else "somebody calls it without the gateway"
        )
        rates = f"{theirs / length_s:.3g}/s where the sidecars count {ours / length_s:.3g}/s"
        return [f"{self._source} counts {rates}: {why}"]

    def _by(self, at_s: float) -> _Seen:
        """The last that was seen by then."""
        return self._seen[max(0, bisect_right(self._seen, at_s, key=lambda s: s.at_s) - 1)]
