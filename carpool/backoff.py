"""Waiting times before a process is restarted."""

from __future__ import annotations

__all__ = ["Backoff"]


class Backoff:
    """Waits that double with each restart, and are reset once a process has lived long enough.

    Args:
        first_s: First wait.
        longest_s: Longest wait.
        healthy_s: A process that has lived this long is restarted after the first wait again.
    """

    def __init__(
        self, first_s: float = 0.1, longest_s: float = 10.0, healthy_s: float = 30.0
    ) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._healthy_s = healthy_s
        self._next_s = first_s

    def after(self, lifetime_s: float) -> float:
        """Return the wait after a process that lived for ``lifetime_s``."""
        if lifetime_s >= self._healthy_s:
            self._next_s = self._first_s
        wait_s = self._next_s
        self._next_s = min(2 * wait_s, self._longest_s)
        return wait_s
