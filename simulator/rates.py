"""How many requests a second there were: what a scaler measures, from what sidecars count."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from scaler.control import measured_rates as live

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler.arrivals.processes import Times

__all__ = ["LiveRates", "Rates"]


class Rates:
    """Counts arrivals over a window that ends now.

    Args:
        first: Rates to go by before anything is measured.
        window_s: How far back to count.
    """

    def __init__(self, first: Sequence[float], window_s: float) -> None:
        self._first = list(first)
        self._window_s = window_s
        self._stretches: deque[tuple[float, float, list[Times]]] = deque()

    def note(self, start_s: float, end_s: float, times: list[Times]) -> None:
        """These are the arrivals of the next stretch of time; it may still lie ahead."""
        while self._stretches and self._stretches[0][1] <= start_s - self._window_s:
            self._stretches.popleft()
        self._stretches.append((start_s, end_s, times))

    def at(self, now: float) -> list[float]:
        """Requests per second of each application, as far as the window has been seen."""
        start = max(now - self._window_s, 0.0)
        if now <= start:
            return self._first
        counts = np.zeros(len(self._first))
        for began, ended, times in self._stretches:
            if ended > start and began < now:
                counts += [_between(each, start, now) for each in times]
        rates: list[float] = (counts / (now - start)).tolist()
        return rates


class LiveRates(Rates):
    """As a live scaler measures them: sidecars report each stretch when it is over."""

    def __init__(self, first: Sequence[float], window_s: float) -> None:
        super().__init__(first, window_s)
        self._live = live.Rates(window_s)

    def at(self, now: float) -> list[float]:
        """As `Rates.at`."""
        while self._stretches and self._stretches[0][1] <= now:
            start_s, end_s, times = self._stretches.popleft()
            counts = {str(number): len(each) for number, each in enumerate(times)}
            self._live.note(counts, end_s - start_s, end_s)
        measured = self._live.at(now)
        return [measured[str(n)] for n in range(len(self._first))] if measured else self._first


def _between(times: Times, start: float, end: float) -> int:
    return int(np.searchsorted(times, end, side="right") - np.searchsorted(times, start))
