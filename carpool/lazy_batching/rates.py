"""Arrival rates, estimated from the latest requests."""

from __future__ import annotations

from collections import deque

__all__ = ["Rate"]

_REMEMBERED = 64
_ENOUGH = 8


class Rate:
    """Estimates a rate from observed arrivals."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_REMEMBERED)

    def arrived(self, at: float) -> None:
        """Record the arrival of a request."""
        self._seen.append(at)

    def rps(self, now: float) -> float:
        """Return the requests per second up to ``now``; 0 while too few have arrived."""
        span_s = now - self._seen[0] if self._seen else 0.0
        return len(self._seen) / span_s if len(self._seen) >= _ENOUGH and span_s > 0 else 0.0
