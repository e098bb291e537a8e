"""Estimate the rate to provision for: the measured rate without noise, plus a reserve.

Theory of operation
-------------------
Measured rates are counts over some ten seconds and fluctuate by chance. They are averaged over a
slightly longer time, except for changes that chance does not explain: a rate that exceeds the
average by more than its own standard deviation is believed at once, and so is one that is as far
below it. The guard, which follows reductions slowly, keeps the present instances for a while.

An instance that is requested now is ready only after it has loaded. So the rise recently seen over
that time is expected again: the mean square of the excess of rates over the expectation that long
before, beyond what chance explains, forgotten over minutes. A calm load has no reserve; one that
drifts or bursts has the reserve it needs.

The next burst of a load that jumps between levels is expected to be like the last (`plateau`).

Averages lag while a load rises steadily. Two averages, over a shorter and a longer time, differ by
the rise between their ages. Beyond what chance explains, the rise is assumed to continue from the
age of the shorter one until an instance has loaded.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from scaler.policies.carpool.plateau import Plateau

__all__ = ["Demand", "Demands"]

_COUNTED_S = 10.0  # usual period over which rates are counted
_MOMENT_S = 0.5  # period over which rates are counted right after a jump
_SEEN_S = 0.5  # time until a jump is noticed
_JUMP = 3.0  # standard deviations that chance does not explain
_CROSSING = 1.5  # standard deviations above the average that are followed at once
_REMEMBERED_S = 180.0
_AGAIN_S = 1.0  # time after a jump for which rates are counts of `_MOMENT_S`
_SHORT_S, _LONG_S = 8.0, 30.0  # periods of the two averages whose difference shows a trend
_CLEAR = 2.5  # standard deviations of their difference that show one


@dataclass(frozen=True, slots=True)
class Demand:
    """The load to provision instances for.

    Attributes:
        level_rps: The rate without its noise.
        reserve_rps: Additional rate that may arrive while an instance loads.
        jumped: Whether the load has just risen beyond chance.
        rising: Whether the load has been rising for a while.
    """

    level_rps: float
    reserve_rps: float
    jumped: bool
    rising: bool = False

    @property
    def rate_rps(self) -> float:
        """Level and reserve together."""
        return self.level_rps + self.reserve_rps


@dataclass(slots=True)
class _Memory:
    """Observations of one function.

    Attributes:
        at_s: Time of the last update.
        level_rps: The average.
        jumped_s: When the load last jumped.
        short_rps, long_rps: Averages over a shorter and a longer time, both restarted after a jump.
        risen: Mean square of unexpected rises, beyond chance.
        expected: Past expectations with their times, for as long as an instance loads.
        plateau: The rate of bursts.
    """

    at_s: float
    level_rps: float
    short_rps: float
    long_rps: float
    jumped_s: float = -math.inf
    risen: float = 0.0
    expected: deque[tuple[float, float]] = field(default_factory=deque)
    plateau: Plateau = field(default_factory=lambda: Plateau(_COUNTED_S))


class Demands:
    """The demand of every function, updated each round.

    Args:
        smoothing_s: Time over which rates are averaged.
        reserve: Number of standard deviations of past rises to keep in reserve.
        trend: Whether a steady rise is assumed to continue.
        surge: Whether to expect more than was counted after a jump.
        bursts: Whether to expect the rate that bursts have had before.
    """

    def __init__(
        self,
        smoothing_s: float,
        reserve: float,
        *,
        trend: bool = True,
        surge: bool = True,
        bursts: bool = True,
    ) -> None:
        self._smoothing_s = smoothing_s
        self._reserve = reserve
        self._trend, self._surge, self._bursts = trend, surge, bursts
        self._seen: dict[str, _Memory] = {}

    def of(self, function: str, measured_rps: float, load_s: float, now_s: float) -> Demand:
        """Update a function's demand with this round's rate, and return it."""
        memory = self._seen.get(function)
        if memory is None:
            memory = self._seen[function] = _Memory(now_s, measured_rps, measured_rps, measured_rps)
        passed_s = max(now_s - memory.at_s, 0.0)
        memory.at_s = now_s
        _learn(memory, measured_rps, load_s + _SEEN_S, passed_s, now_s)
        _follow(memory, measured_rps, self._smoothing_s, passed_s, now_s)
        if self._bursts:
            jumps = memory.jumped_s == now_s
            memory.plateau.update(measured_rps, passed_s, now_s, jumped=jumps)
            memory.level_rps = memory.plateau.likely(memory.level_rps, now_s)
        memory.expected.append((now_s, memory.level_rps))
        jumped = now_s - memory.jumped_s < _AGAIN_S
        doubt = math.sqrt(measured_rps / _MOMENT_S) if jumped and self._surge else 0.0
        reserve = max(self._reserve * math.sqrt(memory.risen), doubt)
        forecast = _forecast(memory, load_s + _SEEN_S) if self._trend else 0.0
        risen = forecast - memory.level_rps
        return Demand(memory.level_rps, max(reserve, risen), jumped, rising=risen > reserve)


def _follow(
    memory: _Memory, measured_rps: float, smoothing_s: float, passed_s: float, now_s: float
) -> None:
    level = memory.level_rps
    apart = measured_rps - level
    deviation = math.sqrt(max(level, measured_rps) / _COUNTED_S)
    if apart > _JUMP * deviation:
        memory.jumped_s = now_s
    jumps = abs(apart) > _JUMP * deviation
    for name, age_s in (("short_rps", _SHORT_S), ("long_rps", _LONG_S)):
        average = getattr(memory, name)
        weight = 1.0 if jumps else 1 - math.exp(-passed_s / age_s)
        setattr(memory, name, average + weight * (measured_rps - average))
    if apart > _CROSSING * deviation or -apart > _JUMP * deviation:
        memory.level_rps = measured_rps
    elif smoothing_s > 0:
        memory.level_rps = level + (1 - math.exp(-passed_s / smoothing_s)) * apart
    else:
        memory.level_rps = measured_rps


def _forecast(memory: _Memory, ahead_s: float) -> float:
    """Return the rate ``ahead_s`` from now if it keeps rising, or 0 if it is not clearly rising."""
    apart = memory.short_rps - memory.long_rps
    chance = math.sqrt(memory.long_rps / (2 * _LONG_S))
    if apart <= _CLEAR * chance:
        return 0.0
    age_s = _SHORT_S + _COUNTED_S / 2
    return memory.short_rps + apart / (_LONG_S - _SHORT_S) * (age_s + ahead_s)


def _learn(
    memory: _Memory, measured_rps: float, ahead_s: float, passed_s: float, now_s: float
) -> None:
    """Compare the rate with the expectation ``ahead_s`` ago, when instances had to be started."""
    expected = memory.expected
    while len(expected) > 1 and expected[1][0] <= now_s - ahead_s:
        expected.popleft()
    if not expected or passed_s <= 0:
        return
    risen = max(measured_rps - expected[0][1], 0.0)
    beyond = max(risen**2 - measured_rps / _COUNTED_S, 0.0)
    memory.risen += (1 - math.exp(-passed_s / _REMEMBERED_S)) * (beyond - memory.risen)
