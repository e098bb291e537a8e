"""Replay of arrivals with the windows of a policy."""

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
    """Policy with windows from a list in turn; records its observations."""

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
    """Return the result of a replay by brute force, with a ticking clock."""
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
def test_replay_matches_brute_force(
    arrivals: np.ndarray[Any, np.dtype[np.float64]],
    windows: list[tuple[float, float | None]],
    exec_s: float,
) -> None:
    """Cold starts, loads and idle seconds agree for any arrivals and windows."""
    expected = second_by_second(arrivals, Rotating(windows), exec_s)
    assert expected == replay(arrivals, Rotating(windows), exec_s)


def test_keep_alive_matches_hand_calculation() -> None:
    """With a keep-alive of 10 s, a gap of 10 s is warm, and one of 12 s is cold and costs 10 s."""
    found = replay(np.array([5.0, 15.0, 27.0, 28.0]), Rotating([(0.0, 10.0)]))
    assert Replayed(requests=4, cold_starts=2, idle_s=21.0, loads=2) == found
    assert 0.5 == found.cold_start_ratio


def test_loading_ahead_matches_hand_calculation() -> None:
    """Loaded from 8 to 10 s: a gap of 9 is warm and costs 1, 5 is cold, 12 is cold and costs 2."""
    arrivals = np.array([0.0, 9.0, 14.0, 26.0])
    assert Replayed(4, 3, 3.0, 5) == replay(arrivals, Rotating([(8.0, 10.0)]))


def test_requests_while_one_executes_end_no_idle_time() -> None:
    """The policy observes only the idle times between executions."""
    policy = Rotating([(0.0, None)])
    found = replay(np.array([0.0, 1.0, 2.5, 10.0]), policy, exec_s=2.0)
    assert Replayed(4, 1, 5.5, 1) == found
    assert [(5.5, 10.0)] == policy.told


def test_no_requests() -> None:
    """Without requests the result is zero."""
    assert Replayed() == replay(np.empty(0), Rotating([(0.0, None)]))
    assert 0.0 == Replayed().cold_start_ratio


def test_outcomes_add_up() -> None:
    """The results of two functions can be added."""
    assert Replayed(5, 3, 4.0, 6) == Replayed(2, 1, 1.5, 2) + Replayed(3, 2, 2.5, 4)


def test_policy_observes_only_gaps_longer_than_execution() -> None:
    """At five requests per second, a policy observes only the gaps longer than an execution."""
    arrivals = np.cumsum(np.random.default_rng(3).exponential(0.2, 200000))
    policy = Rotating([(0.0, 60.0)])
    replay(arrivals, policy, exec_s=2.0)
    assert int((np.diff(arrivals) > 2.0).sum()) == len(policy.told)
    assert len(policy.told) < 20


def test_second_replay_uses_what_policy_learned() -> None:
    """A second replay with the same policy uses what it learned in the first."""
    policy = LongShortHistogram(LongShortHistogram.Params())
    hours = np.arange(0.0, 86400.0, 3600.0)
    first = replay(hours, policy)
    assert replay(hours + 86400.0, policy).idle_s < first.idle_s


@pytest.mark.parametrize("windows", [(-1.0, 5.0), (6.0, 5.0), (np.inf, None), (np.nan, 5.0)])
def test_invalid_windows_are_refused(windows: tuple[float, float | None]) -> None:
    """A release before the load and times that are negative or not finite are refused."""
    with pytest.raises(ConfigError, match="prewarm_s"):
        Windows(*windows)
