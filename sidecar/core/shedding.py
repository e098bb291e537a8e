"""Refusing early what would be answered too late, carefully.

A refusal at the door costs a caller a moment; a late answer costs him his deadline and others a
seat. But a predictor can be wrong, so shedding starts dark: what would have been refused is
counted and served. Switched on, it refuses at most a given share of the arrivals of each window
(compare Finagle's DeadlineFilter), so that a broken predictor cannot close the function, and
enough requests pass to correct it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Shedding"]

_WINDOW_S = 10.0


@dataclass(slots=True)
class Shedding:
    """Decides whether a request that is predicted to be late is refused.

    Attributes:
        mode: ``off``, ``dark`` (count, do not refuse) or ``on``.
        cap: largest share of a window's arrivals that is refused.
        late: how many were predicted to be late, refused or not.
    """

    mode: str = "dark"
    cap: float = 0.8
    late: int = 0
    _began: float = 0.0
    _arrived: int = 0
    _refused: int = 0

    def refuses(self, *, late: bool, now: float) -> bool:
        """Count an arrival; True if it is to be refused."""
        if now - self._began >= _WINDOW_S:
            self._began, self._arrived, self._refused = now, 0, 0
        self._arrived += 1
        if not late:
            return False
        self.late += 1
        if self.mode != "on" or self._refused >= self.cap * self._arrived:
            return False
        self._refused += 1
        return True
