"""Loads that are hard to scale for in different ways, each with a given mean rate.

Days and weeks are compressed to the horizon. What instances must react to, such as jumps and gaps
between bursts, has its real duration in seconds. A trace depends only on its seed.
"""

from __future__ import annotations

import itertools
import math
import random
from typing import TYPE_CHECKING, TypeAlias

from carpool.arrivals.markov import mmpp2
from carpool.arrivals.processes import Poisson, Trace, read_trace
from carpool.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from carpool.arrivals.processes import ArrivalProcess

__all__ = ["TRACES", "Maker", "measured_traces"]

Maker: TypeAlias = "Callable[[float, float, int], ArrivalProcess]"  # mean rate, horizon, seed

_STEP_S = 1.0
_DAY_AMPLITUDE = 0.8  # the night has a ninth of the noon's load
_BURST_RATIO = 12.0  # ratio of the rates of the phases, and how often they change (BATCH, SC'20)
_BURST_SWITCH = 0.05
_ON_S, _OFF_S = (60.0, 180.0), (60.0, 180.0)
_CROWD_TIMES, _CROWD_GAP_S, _CROWD_DECAY_S = 8.0, 400.0, 40.0
_SPORADIC_GAP_S, _SPORADIC_S, _SPORADIC_SHARE = 240.0, (20.0, 60.0), 0.3
_HOUR_S, _HOURS, _DAYS_TIMES, _TIMER_SHARE = 20.0, 24, 4.0, 0.25


def _steady(rate_rps: float, horizon_s: float, seed: int) -> ArrivalProcess:
    """Return a constant rate."""
    del horizon_s, seed
    return Poisson(rate_rps)


def _diurnal(rate_rps: float, horizon_s: float, seed: int) -> ArrivalProcess:
    """Return a day between two nights."""
    del seed
    times = _times(horizon_s)
    return _trace(
        [1 - _DAY_AMPLITUDE * math.cos(2 * math.pi * at / horizon_s) for at in times], rate_rps
    )


def _bursty(rate_rps: float, horizon_s: float, seed: int) -> ArrivalProcess:
    """Return an MMPP(2) that is low for about twenty seconds and high for about twenty."""
    del horizon_s, seed
    low = 2 * rate_rps / (1 + _BURST_RATIO)
    return mmpp2([low, _BURST_RATIO * low], [_BURST_SWITCH, _BURST_SWITCH])


def _on_off(rate_rps: float, horizon_s: float, seed: int) -> ArrivalProcess:
    """Return a rate that is constant for minutes, then zero for minutes."""
    draw = random.Random(f"on-off {seed}")  # noqa: S311  a load, not a secret
    weights: list[float] = []
    while len(weights) < len(_times(horizon_s)):
        weights += [1.0] * int(draw.uniform(*_ON_S)) + [0.0] * int(draw.uniform(*_OFF_S))
    return _trace(weights[: len(_times(horizon_s))], rate_rps)


def _flash_crowd(rate_rps: float, horizon_s: float, seed: int) -> ArrivalProcess:
    """Return a calm load that jumps to many times its rate within seconds and then decays."""
    starts = list(_starts(_CROWD_GAP_S, horizon_s, f"flash crowd {seed}"))
    weights = [
        1.0
        + _CROWD_TIMES
        * sum([math.exp((start - at) / _CROWD_DECAY_S) for start in starts if start <= at])
        for at in _times(horizon_s)
    ]
    return _trace(weights, rate_rps)


def _sporadic(rate_rps: float, horizon_s: float, seed: int) -> ArrivalProcess:
    """Return no load except for occasional bursts of less than a minute."""
    draw = random.Random(f"lengths {seed}")  # noqa: S311
    weights = [0.0] * len(_times(horizon_s))
    for start in _starts(_SPORADIC_GAP_S, horizon_s, f"sporadic {seed}"):
        end = int(start + draw.uniform(*_SPORADIC_S))
        weights[int(start) : end] = [1.0] * len(weights[int(start) : end])
    return _trace(weights, _SPORADIC_SHARE * rate_rps)


def _timers(rate_rps: float, horizon_s: float, seed: int) -> ArrivalProcess:
    """Return calls on every full hour, many more once a day; an hour lasts twenty seconds."""
    del seed
    weights = [
        0.0 if at % _HOUR_S >= _STEP_S else (1.0 if at // _HOUR_S % _HOURS else _DAYS_TIMES)
        for at in _times(horizon_s)
    ]
    return _trace(weights, _TIMER_SHARE * rate_rps)


TRACES: dict[str, Maker] = {
    "steady": _steady,
    "diurnal": _diurnal,
    "bursty": _bursty,
    "on-off": _on_off,
    "flash-crowd": _flash_crowd,
    "sporadic": _sporadic,
    "timers": _timers,
}


def measured_traces(folder: Path) -> dict[str, Maker]:
    """Return the most variable section of each trace ``*.csv`` in a folder, by name.

    Raises:
        ConfigError: what is wrong with one.
    """
    return {path.stem: _measured(path) for path in sorted(folder.glob("*.csv"))}


def _measured(path: Path) -> Maker:
    whole = read_trace(path)
    _check(path, whole.rates_rps)

    def make(rate_rps: float, horizon_s: float, seed: int) -> ArrivalProcess:
        del seed
        start_s = _liveliest(whole, horizon_s)
        rates = [whole.rate(start_s + at) for at in _times(horizon_s)]
        _check(path, rates)
        return _trace(rates, rate_rps)

    return make


def _check(path: Path, rates_rps: Sequence[float]) -> None:
    if not any(rates_rps):
        expected = "a rate above 0 in the section that is used, to be scaled to a mean rate"
        raise ConfigError([Problem(str(path), "no requests", expected)])


def _liveliest(trace: Trace, horizon_s: float) -> float:
    """Return where the section of this length with the largest changes, or else rate, begins."""
    starts = [at for at in trace.starts_s if at + horizon_s <= trace.end_s] or [0.0]

    def changed(start_s: float) -> tuple[float, float]:
        inside = [
            rate
            for at, rate in zip(trace.starts_s, trace.rates_rps, strict=True)
            if start_s <= at < start_s + horizon_s
        ]
        return sum([abs(b - a) for a, b in itertools.pairwise(inside)]), sum(inside)

    return max(starts, key=changed)


def _times(horizon_s: float) -> Sequence[float]:
    return [number * _STEP_S for number in range(max(1, math.ceil(horizon_s / _STEP_S)))]


def _starts(mean_gap_s: float, horizon_s: float, seed: str) -> Iterator[float]:
    """Yield at least one random time, with gaps of a quarter of the mean gap or more."""
    draw = random.Random(seed)  # noqa: S311
    at_s = min(draw.uniform(0.25, 0.75) * mean_gap_s, horizon_s / 2)
    while at_s < horizon_s:
        yield at_s
        at_s += mean_gap_s * (0.25 + 0.75 * draw.expovariate(1.0))


def _trace(weights: Sequence[float], rate_rps: float) -> Trace:
    """Return a trace with this mean rate, proportional to the weights, one per step."""
    scale = rate_rps * len(weights) / sum(weights)
    starts = tuple(number * _STEP_S for number in range(len(weights)))
    return Trace(starts, tuple(scale * weight for weight in weights), len(weights) * _STEP_S)
