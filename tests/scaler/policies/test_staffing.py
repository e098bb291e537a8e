"""The capacity that instances need beyond the mean rate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.policies.common.staffing import needed_rps


def late_share(instances: int, busy: float, slack: float, requests: int = 40_000) -> float:
    """Return the share of requests that wait longer than ``slack`` executions for an instance."""
    arrived = np.cumsum(np.random.default_rng(1).exponential(1 / busy, requests)).tolist()
    free = [0.0] * instances
    late = 0
    for number, at in enumerate(arrived):
        start = max(at, free[number % instances])  # equal executions end in the order they begin
        free[number % instances] = start + 1
        late += start - at > slack
    return late / requests


@pytest.mark.parametrize("slack", [0.1, 0.2, 0.4, 0.8, 1.0, 2.0])
@pytest.mark.parametrize("busy", [0.02, 0.1, 0.5, 1, 3, 10, 30, 80])
def test_needed_capacity_agrees_with_simulated_queue(busy: float, slack: float) -> None:
    """One more instance suffices for 99 of 100 simulated requests; two and 5 % fewer do not."""
    instances = math.ceil(needed_rps(busy, 1.0, slack, 0.01))
    assert late_share(instances + 1, busy, slack) <= 0.01
    fewer = instances - 2 - math.ceil(busy / 20)
    assert fewer <= busy or late_share(fewer, busy, slack) > 0.01


def test_no_capacity_is_needed_without_requests() -> None:
    """Without requests no capacity is needed."""
    assert 0 == needed_rps(0.0, 0.1, 0.1, 0.01)


@pytest.mark.parametrize("slack_s", [0.0, -0.1])
def test_no_capacity_suffices_without_slack(slack_s: float) -> None:
    """Without slack no capacity suffices, as some request always finds all instances busy."""
    assert math.inf == needed_rps(10.0, 0.1, slack_s, 0.01)


def test_large_load_needs_small_reserve() -> None:
    """At a large load the reserve is below 0.1 % of the rate."""
    assert needed_rps(100_000.0, 0.1, 0.1, 0.01) < 100_000 * 1.001


AMOUNTS = st.floats(0.01, 1000)


@given(
    rate=AMOUNTS,
    exec_s=st.floats(0.001, 1),
    slack=st.floats(0.01, 5),
    batch=st.sampled_from([1, 4, 32]),
)
def test_lighter_demand_needs_hardly_more_capacity(
    rate: float, exec_s: float, slack: float, batch: int
) -> None:
    """At least the rate is needed, and a lighter demand needs hardly more than a heavier one."""
    slack_s = exec_s * (slack if batch == 1 else max(slack, 1.0))  # as Eq. 1 has it of batches
    needed = needed_rps(rate, exec_s, slack_s, 0.01, batch)
    assert needed >= rate
    most = needed * 1.02 + batch / exec_s  # where the likeliest stretch becomes another one
    assert needed_rps(rate, exec_s, slack_s * 1.5, 0.01, batch) <= most
    assert needed_rps(rate, exec_s, slack_s, 0.05, batch) <= most
    assert needed_rps(rate / 2, exec_s, slack_s, 0.01, batch) <= most
