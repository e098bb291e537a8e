"""How long to wait before a process is started again."""

from __future__ import annotations

__all__ = ["Backoff"]


class Backoff:
    """Doubling waits, short again after a healthy life.

    Args:
        first_s: the first wait.
        longest_s: the longest.
        healthy_s: a process that lived this long starts over with the first.
    """

    def __init__(
        self, first_s: float = 0.1, longest_s: float = 10.0, healthy_s: float = 30.0
    ) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._healthy_s = healthy_s
        self._next_s = first_s

    def after(self, lifetime_s: float) -> float:
        """The wait after a process that lived for ``lifetime_s``."""
        if lifetime_s >= self._healthy_s:
            self._next_s = self._first_s
        wait_s = self._next_s
        self._next_s = min(2 * wait_s, self._longest_s)
        return wait_s
