"""Compare the versions of one function since the shares of its calls were last set.

It takes readings of monotonic counters, as `History` does, and returns the increase since the first
one. The time is passed in.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from carpool.log_histogram import quantile_s
from scaler.dashboard.history import ENDED, has_grown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler.dashboard.history import History, Reading

__all__ = ["Comparison"]

_ALL = 100.0  # percent
_S_PER_HOUR = 3600.0
_QUANTILES = {"p50_s": 0.5, "p95_s": 0.95, "p99_s": 0.99}


class Comparison:
    """Requests, latencies and costs of each version.

    Args:
        name: the function whose calls are divided.
        percents: percentage of its calls, by the function that gets them.
        now_s: when the shares were set, on any time axis.
        wall_s: the same as seconds since the epoch.
    """

    def __init__(
        self, name: str, percents: Mapping[str, float], now_s: float, wall_s: float
    ) -> None:
        self.percents = percents
        shares = {name: _ALL - sum(percents.values()), **percents}
        self._since_s = wall_s
        self._versions = {each: _Version(share, now_s) for each, share in shares.items()}

    def note(
        self, readings: Mapping[str, Reading], pasts: Mapping[str, History], now_s: float
    ) -> None:
        """Record the current readings; functions without a reading are not measured here."""
        for name, version in self._versions.items():
            if name in readings:
                version.note(readings[name], pasts[name], now_s)

    def to_dict(self) -> dict[str, Any]:
        """Return the start time and a row per version for JSON, the function's own row first."""
        rows = [{"name": name, **each.to_dict()} for name, each in self._versions.items()]
        return {"since_s": self._since_s, "versions": rows}


class _Version:
    """Counters of one version, and their first values."""

    def __init__(self, percent: float, now_s: float) -> None:
        self._percent = percent
        self._first: Reading | None = None
        self._last: Reading | None = None
        self._began_s = self._now_s = now_s
        self._cost = self._core_s = 0.0

    def note(self, reading: Reading, past: History, now_s: float) -> None:
        if self._first is None or self._last is None or not has_grown(self._last, reading):
            self._first, self._began_s, self._cost, self._core_s = reading, now_s, 0.0, 0.0
        elif samples := past.after(past.last - 1):
            elapsed_s = now_s - self._now_s
            self._cost += samples[-1].cost_per_hour / _S_PER_HOUR * elapsed_s
            self._core_s += samples[-1].cores * elapsed_s
        self._last, self._now_s = reading, now_s

    def to_dict(self) -> dict[str, Any]:
        if self._first is None or self._last is None:
            return {"percent": self._percent, "measured": False}
        elapsed_s = self._now_s - self._began_s
        outcomes = Counter(self._last.outcomes)
        outcomes.subtract(self._first.outcomes)
        latency = Counter(self._last.latency)
        latency.subtract(self._first.latency)
        ended = sum(outcomes[name] for name in ENDED)
        return {
            "percent": self._percent,
            "measured": True,
            "requests": ended,
            "rate_rps": ended / elapsed_s if elapsed_s > 0 else 0.0,
            **{name: quantile_s(latency, share) for name, share in _QUANTILES.items()},
            "late": outcomes["late"],
            "refused": outcomes["refused"],
            "errors": outcomes["failed"] + outcomes["expired"],
            "cost": self._cost,
            "core_s": self._core_s,
        }
