"""Predicts sequence lengths: the length that covers nine of ten seen so far (Algorithm 1)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

__all__ = ["Lengths"]

_REMEMBERED = 1000


class Lengths:
    """Learns from observed lengths.

    Args:
        cover: Share of sequences that a prediction should cover (N in the paper).
        unseen: Prediction before any length has been observed.
    """

    def __init__(self, cover: float = 0.9, unseen: int = 1) -> None:
        self._cover = cover
        self._unseen = unseen
        self._seen: deque[int] = deque()
        self._sorted: list[int] = []

    def observe(self, length: int) -> None:
        """Record the number of steps of a finished sequence."""
        self._seen.append(length)
        insort(self._sorted, length)
        if len(self._seen) > _REMEMBERED:
            del self._sorted[bisect_left(self._sorted, self._seen.popleft())]

    def predicted(self) -> int:
        """Return the number of steps that the next sequence is not expected to exceed."""
        if not self._sorted:
            return self._unseen
        needed = self._cover * len(self._sorted)
        index = max(0, -int(-needed // 1) - 1)  # the first by which so many are covered
        return self._sorted[min(index, len(self._sorted) - 1)]
