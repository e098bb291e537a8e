"""Capacity of instances within an objective: the law and simulated queues."""

from __future__ import annotations

import heapq
import random

import numpy as np
import pytest

from carpool.latency import Resources
from carpool.scaling import Size
from scaler.policies.carpool.capacity import COUNTS, capacities, windows_s
from scaler.policies.carpool.options import Option
from tests.effort import scaled

MISS = 0.01


def option(batch: int, single_s: float, item_s: float) -> Option:
    """Return a size whose batches take ``item_s`` longer for each further request."""
    exec_s = single_s + item_s * (batch - 1)
    size = Size(batch, 1.0, 0.0, resources=Resources(1.0), exec_s=exec_s, rate_rps=batch / exec_s)
    return Option(size, single_s)


def taken(one: Option, count: int, slo_s: float, *, patient: bool = False) -> float:
    """Return the rate that the law allows."""
    found = capacities([one], slo_s, MISS, patient=patient)[0]
    return float(np.interp(count, COUNTS, found))


def late(
    one: Option, count: int, slo_s: float, rate_rps: float, requests: int, window_s: float = 0.0
) -> float:
    """Return the share of late Poisson arrivals, served in order by the first free instance."""
    draw = random.Random(1)
    times, at_s = [], 0.0
    for _ in range(requests):
        at_s += draw.expovariate(rate_rps)
        times.append(at_s)
    free, missed, first = [0.0] * count, 0, 0
    while first < requests:
        full_s = times[min(first + one.size.batch, requests) - 1]
        start_s = max(heapq.heappop(free), min(times[first] + window_s, full_s))
        last = first
        while last < requests and last - first < one.size.batch and times[last] <= start_s:
            last += 1
        end_s = start_s + one.single_s + one.item_s * (last - first - 1)
        missed += sum(end_s - arrived_s > slo_s for arrived_s in times[first:last])
        heapq.heappush(free, end_s)
        first = last
    return missed / requests


@pytest.mark.parametrize("slack", [1.5, 2.5, 6.0])
@pytest.mark.parametrize("count", [1, 2, 5, 16])
@pytest.mark.parametrize(("batch", "item_s"), [(1, 0.0), (4, 0.2), (8, 0.6)])
def test_late_share_is_bounded_at_allowed_rate(
    batch: int, item_s: float, count: int, slack: float
) -> None:
    """At the allowed rate, at most twice the permitted share is late, as the law is approximate."""
    one = option(batch, 1.0, item_s)
    slo_s = slack * one.size.exec_s
    rate_rps = taken(one, count, slo_s)
    if rate_rps:
        assert late(one, count, slo_s, rate_rps, scaled(100_000)) <= 2 * MISS


@pytest.mark.parametrize(("batch", "item_s"), [(1, 0.0), (4, 0.2), (8, 0.6)])
def test_little_capacity_is_left_above_allowed_rate(batch: int, item_s: float) -> None:
    """With ten instances and some slack, 1.6 times the allowed rate is too much."""
    one = option(batch, 1.0, item_s)
    slo_s = 3 * one.size.exec_s
    rate_rps = 1.6 * taken(one, 10, slo_s)
    assert late(one, 10, slo_s, rate_rps, scaled(100_000)) > MISS


@pytest.mark.parametrize("slack", [1.25, 1.4, 2.5])
@pytest.mark.parametrize("count", [1, 2, 5, 16])
@pytest.mark.parametrize(("batch", "item_s"), [(2, 0.4), (4, 0.2), (16, 0.1)])
def test_late_share_is_bounded_for_waiting_batches(
    batch: int, item_s: float, count: int, slack: float
) -> None:
    """With batches that wait for more requests, at most twice the permitted share is late."""
    one = option(batch, 1.0, item_s)
    slo_s = slack * one.size.exec_s
    rate_rps = taken(one, count, slo_s, patient=True)
    (window_s,) = windows_s([one], slo_s)
    if rate_rps:
        assert late(one, count, slo_s, rate_rps, scaled(100_000), window_s) <= 2 * MISS


def test_little_capacity_is_left_for_waiting_pairs() -> None:
    """With five instances and waiting batches of two, 1.6 times the allowed rate is too much."""
    one = option(2, 1.0, 0.4)
    slo_s = 1.25 * one.size.exec_s
    rate_rps = 1.6 * taken(one, 5, slo_s, patient=True)
    (window_s,) = windows_s([one], slo_s)
    assert late(one, 5, slo_s, rate_rps, scaled(100_000), window_s) > MISS


def test_waiting_raises_capacity_for_tight_objective() -> None:
    """Waiting batches raise the capacity if the objective is tight, but hardly if it is long."""
    one = option(8, 1.0, 0.1)
    tight_s, loose_s = 1.6 * one.size.exec_s, 5.0 * one.size.exec_s
    assert taken(one, 2, tight_s, patient=True) > 1.5 * taken(one, 2, tight_s)
    assert taken(one, 2, loose_s, patient=True) == pytest.approx(taken(one, 2, loose_s), rel=0.3)


def test_capacity_grows_with_instances_objective_and_speed() -> None:
    """Capacity grows with instances, objective and speed, up to that of full batches."""
    slow, quick = option(4, 1.0, 0.3), option(4, 0.9, 0.3)
    for slo_s in (2.5, 4.0, 8.0):
        found = capacities([slow, quick], slo_s, MISS)
        assert (np.diff(found, axis=1) >= 0).all()
        assert (found[1] >= found[0]).all()
        assert (found[0] <= COUNTS * slow.size.rate_rps).all()
        assert (capacities([slow], slo_s + 1, MISS)[0] >= found[0]).all()


def test_no_capacity_if_execution_takes_whole_objective() -> None:
    """If an execution takes the whole objective, there is no capacity for random arrivals."""
    assert capacities([option(1, 1.0, 0.0)], 1.0, MISS)[0, 0] == pytest.approx(0.0, abs=0.02)
