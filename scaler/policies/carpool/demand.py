"""The rate to have instances for: what is measured, less noise, and what may come meanwhile.

Theory of operation
-------------------
Measured rates are counts over some ten seconds, and go up and down by chance. They are averaged
over a little longer, but for what chance does not explain: a rate that is further above the average
than its own deviation is believed at once, and so is one that is as far below it; the guard, which
follows reductions slowly, keeps what there is for a while.

An instance that is asked for now is there only after it has loaded. So the rise that was lately
seen over that time is expected again: the mean square of by how much rates exceeded what was
expected so long before them, beyond what chance explains, forgotten over minutes. A load that is
calm has no reserve, one that drifts or bursts has what it needs.

Averages come late where a load rises steadily. Two of them, over a shorter and a longer time,
differ by what it has risen by between their ages. Beyond what chance explains, the rise is
taken to go on from the age of the shorter one until an instance has loaded.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

__all__ = ["Demand", "Demands"]

_COUNTED_S = 10.0  # over so long rates are counted, mostly
_MOMENT_S = 0.5  # and over so long right after a jump
_SEEN_S = 0.5  # until a jump is noticed
_JUMP = 3.0  # deviations that no chance explains
_CROSSING = 1.5  # deviations above the average that are followed
_REMEMBERED_S = 180.0
_AGAIN_S = 1.0  # after a jump the count is of a moment
_SHORT_S, _LONG_S = 8.0, 30.0  # of the averages that a trend is seen by
_CLEAR = 2.5  # deviations of their difference


@dataclass(frozen=True, slots=True)
class Demand:
    """What instances are needed for.

    Attributes:
        level_rps: The rate without its noise.
        reserve_rps: What may come on top while an instance loads.
        jumped: The load has risen beyond chance just now.
        rising: It has been rising for a while.
    """

    level_rps: float
    reserve_rps: float
    jumped: bool
    rising: bool = False

    @property
    def rate_rps(self) -> float:
        """All of it."""
        return self.level_rps + self.reserve_rps


@dataclass(slots=True)
class _Memory:
    """What has been seen of a function.

    Attributes:
        at_s: When it was last looked at.
        level_rps: The average.
        jumped_s: When the load last jumped.
        short_rps, long_rps: Averages over a shorter and a longer time, both anew after a jump.
        risen: Mean square of unexpected rises, beyond chance.
        expected: What was expected, for so long as an instance loads.
    """

    at_s: float
    level_rps: float
    short_rps: float
    long_rps: float
    jumped_s: float = -math.inf
    risen: float = 0.0
    expected: deque[tuple[float, float]] = field(default_factory=deque)


class Demands:
    """The demand of every function, round by round.

    Args:
        smoothing_s: Over how long rates are averaged.
        reserve: How many deviations of what was seen are kept free.
        trend: Whether a steady rise is taken to go on.
        surge: Whether more is expected after a jump than was counted.
    """

    def __init__(
        self, smoothing_s: float, reserve: float, *, trend: bool = True, surge: bool = True
    ) -> None:
        self._smoothing_s = smoothing_s
        self._reserve = reserve
        self._trend, self._surge = trend, surge
        self._seen: dict[str, _Memory] = {}

    def of(self, function: str, measured_rps: float, load_s: float, now_s: float) -> Demand:
        """What it needs, from this round's rate on."""
        memory = self._seen.get(function)
        if memory is None:
            memory = self._seen[function] = _Memory(now_s, measured_rps, measured_rps, measured_rps)
        passed_s = max(now_s - memory.at_s, 0.0)
        memory.at_s = now_s
        _learn(memory, measured_rps, load_s + _SEEN_S, passed_s, now_s)
        _follow(memory, measured_rps, self._smoothing_s, passed_s, now_s)
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
    """The rate so far ahead if it rises on as it does; 0: it does not, as far as one can tell."""
    apart = memory.short_rps - memory.long_rps
    chance = math.sqrt(memory.long_rps / (2 * _LONG_S))
    if apart <= _CLEAR * chance:
        return 0.0
    age_s = _SHORT_S + _COUNTED_S / 2
    return memory.short_rps + apart / (_LONG_S - _SHORT_S) * (age_s + ahead_s)


def _learn(
    memory: _Memory, measured_rps: float, ahead_s: float, passed_s: float, now_s: float
) -> None:
    """Compare the rate with what was expected when an instance would have had to be asked for."""
    expected = memory.expected
    while len(expected) > 1 and expected[1][0] <= now_s - ahead_s:
        expected.popleft()
    if not expected or passed_s <= 0:
        return
    risen = max(measured_rps - expected[0][1], 0.0)
    beyond = max(risen**2 - measured_rps / _COUNTED_S, 0.0)
    memory.risen += (1 - math.exp(-passed_s / _REMEMBERED_S)) * (beyond - memory.risen)
