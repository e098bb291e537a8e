"""How many calls a provider has open at one sidecar, and how long these take.

Theory of operation
-------------------
An overloaded sidecar marks its answers, as a router marks packets of TCP. The provider then has
half as many calls open, and a few more with each answer without a mark. Further calls wait in the
provider, where a refusal costs less, instead of in the sockets between the two processes, where
calls become late before the sidecar knows of them.

A mark counts only on answers of calls that were sent after the last reduction: earlier calls say
nothing about its effect.

One call at a time is timed, from sending it until its answer has been read, as TCP measures the
round trip. A call that was held until less time is left is not sent any more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CallWindow"]

_FEWEST = 32
_REDUCTION = 0.5
_GROWTH = 0.02  # by how many calls each unmarked answer raises the size
_FALL = 0.1  # weight of a shorter round trip in the average; a longer one replaces it at once


class CallWindow:
    """The most calls that may be open on a connection.

    Attributes:
        size: This number; infinite before the first mark.
        round_trip_s: Time from sending a call until its answer; zero before it was measured.
    """

    __slots__ = ("_last_id", "_timed_at", "_timed_id", "round_trip_s", "size")

    def __init__(self) -> None:
        self.size = math.inf
        self._last_id = 0
        self._timed_id, self._timed_at = 0, 0.0
        self.round_trip_s = 0.0

    def sent(self, call_id: int, now: float) -> None:
        """Time a call that is sent at ``now``, in seconds, if none is being timed."""
        if not self._timed_id:
            self._timed_id, self._timed_at = call_id, now

    def answered(
        self, ids: Sequence[int], open_ids: Sequence[int], now: float, *, marked: bool
    ) -> None:
        """Adapt size and round trip.

        Args:
            ids: The calls that were answered.
            open_ids: All calls that were open until now, in the order in which they were sent.
            now: When, in seconds.
            marked: Whether the answers are marked.
        """
        if self._timed_id in ids:
            took_s, usual_s = now - self._timed_at, self.round_trip_s
            self.round_trip_s = max(took_s, usual_s + _FALL * (took_s - usual_s))
        if self._timed_id in ids or self._timed_id not in open_ids:  # then its caller has left
            self._timed_id = 0
        if not marked:
            self.size += _GROWTH * len(ids)
        elif open_ids and max(ids) > self._last_id:
            self._last_id = open_ids[-1]
            self.size = max(_FEWEST, _REDUCTION * min(self.size, len(open_ids)))
