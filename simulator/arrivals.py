"""Generate the requests of all applications, interval by interval, in order of arrival.

Each application has its own seed, so a different policy or an additional application does not
change the arrival times of the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from carpool.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from carpool.arrivals.processes import ArrivalProcess, Seed, Times
    from scaler.scenarios.scenario import Scenario

__all__ = ["GeneratedArrivals", "check_load", "merged"]

_MOST, _MOST_AT_ONCE = 1e9, 1e8  # more would take many hours, or too many gigabytes of memory


def check_load(scenario: Scenario, interval_s: float) -> None:
    """Check that the simulation can finish.

    Raises:
        ConfigError: too many requests, in total or in one interval.
    """
    apps = [app for function in scenario.functions for app in function.apps]
    rate_rps = sum(app.arrivals.mean_rate for app in apps)
    together = rate_rps * scenario.horizon_s
    at_once = rate_rps * min(interval_s, scenario.horizon_s)
    if together > _MOST or at_once > _MOST_AT_ONCE:
        given = f"{rate_rps:.4g} a second for {scenario.horizon_s:g} s"
        expected = f"at most {_MOST:g} requests, and {_MOST_AT_ONCE:g} in an interval"
        hint = f"they are {together:.4g} and {at_once:.4g}"
        raise ConfigError([Problem("arrivals of all applications", given, expected, hint)])


class GeneratedArrivals:
    """Draws arrivals as time advances, at most one chunk ahead.

    Args:
        processes: One arrival process per application.
        until_s: End of the arrivals.
        seed: Seed of all random numbers.
    """

    def __init__(self, processes: Iterable[ArrivalProcess], until_s: float, seed: int) -> None:
        self._streams = [
            _Stream(process, until_s, (seed, 1, number)) for number, process in enumerate(processes)
        ]

    def take(self, until_s: float) -> list[Times]:
        """Return each application's arrivals before ``until_s`` that have not been returned yet."""
        return [stream.take(until_s) for stream in self._streams]


class _Stream:
    """The arrivals of one application."""

    def __init__(self, process: ArrivalProcess, until_s: float, seed: Seed) -> None:
        self._chunks = process.chunks(until_s, seed)
        self._drawn: Times = np.empty(0)
        self._ended = False

    def take(self, until_s: float) -> Times:
        parts = []
        while True:
            before = int(np.searchsorted(self._drawn, until_s))
            parts.append(self._drawn[:before])
            self._drawn = self._drawn[before:]
            if len(self._drawn) or self._ended:
                break
            chunk = next(self._chunks, None)
            self._ended = chunk is None
            self._drawn = np.empty(0) if chunk is None else chunk
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def merged(times: Sequence[Times]) -> tuple[list[float], list[int]]:
    """Return all arrivals in order with the application of each; ties go to the first one."""
    if len(times) == 1:
        return times[0].tolist(), [0] * len(times[0])
    together = np.concatenate(times)
    whose = np.repeat(np.arange(len(times)), [len(each) for each in times])
    order = np.argsort(together, kind="stable")
    return together[order].tolist(), whose[order].tolist()
