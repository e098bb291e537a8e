"""Waiting times between attempts: to restart a process, or to reach a peer again."""

from __future__ import annotations

__all__ = ["Backoff"]


class Backoff:
    """Waits that double with each attempt, and are reset after one that has lasted long enough.

    Args:
        first_s: First wait.
        longest_s: Longest wait.
        healthy_s: After an attempt that lasted this long, the first wait is used again.
    """

    def __init__(
        self, first_s: float = 0.1, longest_s: float = 10.0, healthy_s: float = 30.0
    ) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._healthy_s = healthy_s
        self._next_s = first_s

    def after(self, lasted_s: float) -> float:
        """Return the wait after an attempt that lasted for ``lasted_s``."""
        if lasted_s >= self._healthy_s:
            self._next_s = self._first_s
        wait_s = self._next_s
        self._next_s = min(2 * wait_s, self._longest_s)
        return wait_s
