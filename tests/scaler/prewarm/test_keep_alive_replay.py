"""Replaying arrivals against windows."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  the contract's own names, as an author writes
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.errors import ConfigError
from scaler.prewarm.contract import PrewarmPolicy, Windows
from scaler.prewarm.long_short_histogram import LongShortHistogram
from scaler.prewarm.replay import Replayed, replay

TICK_S = 0.25
ARRIVALS = st.lists(st.integers(0, 60), max_size=30).map(
    lambda steps: np.cumsum(np.array(steps, dtype=np.float64)) * TICK_S
)


class Rotating:
    """Windows from a list, in turn; remembers what it was told."""

    def __init__(self, windows: list[tuple[float, float | None]]) -> None:
        self._windows = windows
        self.told: list[tuple[float, float]] = []
        self.asked: list[float] = []

    def observe(self, idle_s: float, now_s: float) -> None:
        self.told.append((idle_s, now_s))

    def windows(self, now_s: float) -> Windows:
        self.asked.append(now_s)
        return Windows(*self._windows[len(self.told) % len(self._windows)])

    def to_dict(self) -> dict[str, Any]:
        return {}

    def absorb(self, data: Mapping[str, Any]) -> None:
        del data


def second_by_second(
    arrivals: np.ndarray[Any, np.dtype[np.float64]], policy: PrewarmPolicy, exec_s: float
) -> Replayed:
    """The same by brute force: a clock that ticks, an instance that is there or not."""
    if len(arrivals) == 0:
        return Replayed()
    pending = [round(float(time) / TICK_S) for time in arrivals]
    busy = round(exec_s / TICK_S)
    idle_since: int | None = None
    busy_until = -1
    cold = loads = idle_ticks = 0
    there = False
    windows = Windows(0.0, 0.0)
    for tick in range(pending[-1] + 1):
        if idle_since is None and tick >= busy_until >= 0:
            idle_since = busy_until
            windows = policy.windows(idle_since * TICK_S)
        age_s = 0.0 if idle_since is None else (tick - idle_since) * TICK_S
        until_s = np.inf if windows.keep_alive_s is None else windows.keep_alive_s
        if idle_since is not None:
            before, there = there, windows.prewarm_s <= age_s <= until_s
            loads += there and not before and windows.prewarm_s > 0
        for _ in range(pending.count(tick)):
            if idle_since is not None and age_s > 0:
                policy.observe(age_s, tick * TICK_S)
            if busy_until < 0 or (idle_since is not None and not there and age_s > 0):
                cold += 1
                loads += 1
            there, idle_since, busy_until = True, None, tick + busy
            if busy == 0:
                idle_since = tick
                windows = policy.windows(tick * TICK_S)
                there, age_s = windows.prewarm_s == 0, 0.0
        if idle_since is not None and tick < pending[-1]:
            age_s = (tick - idle_since) * TICK_S
            until_s = np.inf if windows.keep_alive_s is None else windows.keep_alive_s
            there = windows.prewarm_s <= age_s <= until_s
            idle_ticks += windows.prewarm_s <= age_s < until_s
    return Replayed(len(arrivals), cold, idle_ticks * TICK_S, loads)


TICKS = st.integers(0, 40).map(lambda ticks: ticks * TICK_S)
WINDOWS = st.tuples(TICKS, TICKS | st.none()).map(
    lambda pair: (pair[0], None if pair[1] is None else pair[0] + pair[1])
)


@given(
    arrivals=ARRIVALS,
    windows=st.lists(WINDOWS, min_size=1, max_size=4),
    exec_s=st.integers(0, 8).map(lambda ticks: ticks * TICK_S),
)
def test_a_replay_agrees_with_a_clock_that_ticks(
    arrivals: np.ndarray[Any, np.dtype[np.float64]],
    windows: list[tuple[float, float | None]],
    exec_s: float,
) -> None:
    """Whatever the arrivals and windows: as many cold starts, loads and idle seconds."""
    expected = second_by_second(arrivals, Rotating(windows), exec_s)
    assert expected == replay(arrivals, Rotating(windows), exec_s)


def test_a_replay_by_hand() -> None:
    """Kept for 10 s: gaps of 10 are warm, of 12 are cold and cost 10."""
    found = replay(np.array([5.0, 15.0, 27.0, 28.0]), Rotating([(0.0, 10.0)]))
    assert Replayed(requests=4, cold_starts=2, idle_s=21.0, loads=2) == found
    assert 0.5 == found.cold_start_ratio


def test_loading_ahead_by_hand() -> None:
    """There from 8 to 10 s: 9 is warm and costs 1, 5 is too early, 12 too late and costs 2."""
    arrivals = np.array([0.0, 9.0, 14.0, 26.0])
    assert Replayed(4, 3, 3.0, 5) == replay(arrivals, Rotating([(8.0, 10.0)]))


def test_requests_while_one_executes_end_no_idle_time() -> None:
    """The policy hears of idle times between executions, and of nothing else."""
    policy = Rotating([(0.0, None)])
    found = replay(np.array([0.0, 1.0, 2.5, 10.0]), policy, exec_s=2.0)
    assert Replayed(4, 1, 5.5, 1) == found
    assert [(5.5, 10.0)] == policy.told


def test_no_requests() -> None:
    """Nothing comes of nothing."""
    assert Replayed() == replay(np.empty(0), Rotating([(0.0, None)]))
    assert 0.0 == Replayed().cold_start_ratio


def test_outcomes_add_up() -> None:
    """Two functions together."""
    assert Replayed(5, 3, 4.0, 6) == Replayed(2, 1, 1.5, 2) + Replayed(3, 2, 2.5, 4)


def test_a_week_of_requests_is_asked_once_per_idle_time() -> None:
    """Of five requests a second, a policy hears of the gaps longer than an execution alone."""
    arrivals = np.cumsum(np.random.default_rng(3).exponential(0.2, 200000))
    policy = Rotating([(0.0, 60.0)])
    replay(arrivals, policy, exec_s=2.0)
    assert int((np.diff(arrivals) > 2.0).sum()) == len(policy.told)
    assert len(policy.told) < 20


def test_what_a_policy_learned_before_it_uses() -> None:
    """A second replay with the same policy has the windows of the first."""
    policy = LongShortHistogram(LongShortHistogram.Params())
    hours = np.arange(0.0, 86400.0, 3600.0)
    first = replay(hours, policy)
    assert replay(hours + 86400.0, policy).idle_s < first.idle_s


@pytest.mark.parametrize("windows", [(-1.0, 5.0), (6.0, 5.0), (np.inf, None), (np.nan, 5.0)])
def test_windows_are_an_interval(windows: tuple[float, float | None]) -> None:
    """A release before the load, and times that are none, are refused."""
    with pytest.raises(ConfigError, match="prewarm_s"):
        Windows(*windows)
