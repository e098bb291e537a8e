"""How fast requests come, by the last of them."""

from __future__ import annotations

from collections import deque

__all__ = ["Rate"]

_REMEMBERED = 64
_ENOUGH = 8


class Rate:
    """Learns from arrivals as they come."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_REMEMBERED)

    def arrived(self, at: float) -> None:
        """A request came."""
        self._seen.append(at)

    def rps(self, now: float) -> float:
        """Requests a second, the silence up to ``now`` included; 0 while few have come."""
        span_s = now - self._seen[0] if self._seen else 0.0
        return len(self._seen) / span_s if len(self._seen) >= _ENOUGH and span_s > 0 else 0.0
