"""CPU quotas: the kernel's rule and measured execution times."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.arrivals.processes import Poisson
from carpool.latency.linear import Linear
from scaler.planning.cost import Prices
from simulator.quota import Budget, Quota
from tests.simulator.load import Constant, Every, function, run, scenario

if TYPE_CHECKING:
    from scaler.control.planning_result import PlanningResult
    from scaler.planning.snapshot import Snapshot

EXACT = Quota(0.01, 0.0)


def test_batch_takes_work_divided_by_cores_under_full_load() -> None:
    """A hundred batches of 7 ms on a quarter of a core take 2.8 s, within two periods."""
    for quota in (EXACT, Quota()):
        budget, now_s = Budget(quota, 0.25, 0.003), 0.0
        for _ in range(100):
            now_s = budget.end(now_s, 0.007)
        assert 2.8 == pytest.approx(now_s, abs=0.02)


def test_first_share_is_available_after_pause() -> None:
    """Work within one share runs at full speed, and more waits for the next share."""
    budget = Budget(EXACT, 0.25)
    assert 0.002 == pytest.approx(budget.end(0.0, 0.002))
    assert 1.0015 == pytest.approx(budget.end(1.0, 0.0015))
    assert 1.0125 == pytest.approx(budget.end(1.0015, 0.0035))  # 1 ms of the first, all of the next


def test_work_begun_late_in_period_gets_next_share_soon() -> None:
    """A share belongs to a fixed period, so work that begins late gets the next share soon."""
    budget = Budget(EXACT, 0.25)
    assert 0.0115 == pytest.approx(budget.end(0.009, 0.0025))


def test_overuse_until_tick_is_deducted_from_next_period() -> None:
    """Overuse up to the kernel's next tick is deducted from the next period."""
    budget = Budget(Quota(0.01, 0.004), 0.25)
    assert 0.004 == pytest.approx(budget.end(0.0, 0.004))
    assert 0.0102 == pytest.approx(budget.end(0.004, 0.0002))


def test_quota_above_one_core_runs_several_cores_at_once() -> None:
    """A quota of 1.5 cores runs two cores for three quarters of each period."""
    budget = Budget(EXACT, 1.5)
    assert 0.0075 == pytest.approx(budget.end(0.0, 0.015))
    assert 0.0105 == pytest.approx(budget.end(0.0075, 0.001))


@given(
    st.floats(0.05, 3.95),
    st.sampled_from([EXACT, Quota(), Quota(0.1, 0.001)]),
    st.lists(st.tuples(st.floats(0, 0.1), st.floats(1e-5, 0.2)), min_size=1, max_size=40),
)
def test_work_uses_its_shares_without_exceeding_them(
    cpu: float, quota: Quota, batches: list[tuple[float, float]]
) -> None:
    """Work takes at least its time at full speed and at most what the shares allow."""
    if cpu == int(cpu):
        return
    budget, now_s, work_s = Budget(quota, cpu, 0.002), 0.0, 0.0
    for pause_s, batch_s in batches:
        began_s = now_s + pause_s
        now_s = budget.end(began_s, batch_s)
        work_s += batch_s
        assert now_s >= began_s + batch_s / math.ceil(cpu) - 1e-9
        waits_s = quota.period_s + math.ceil(cpu) * quota.tick_s / cpu + quota.tick_s
        assert now_s <= began_s + batch_s / cpu + waits_s + 1e-9
    shares = now_s / quota.period_s + 2
    assert work_s <= shares * cpu * quota.period_s + math.ceil(cpu) * quota.tick_s + 1e-9


@pytest.mark.parametrize(
    ("rate_rps", "measured_ms"),
    [(5.0, 16.8), (15.0, 19.7), pytest.param(30.0, 23.3, marks=pytest.mark.slow)],
    ids=str,
)
def test_quarter_core_times_match_measurements(rate_rps: float, measured_ms: float) -> None:
    """Mean execution times at three loads match those measured on Linux 6.18 at 250 Hz."""
    model = Linear(0.026, 0.002, cpu=0.25)
    found = run(
        scenario(function(Poisson(rate_rps), model), horizon_s=400, prices=Prices(cpu_core_s=1.0)),
        Constant(Constant.Params(), cpu=0.25),
        quota=Quota(),
    )
    assert measured_ms == pytest.approx(1e3 * found["cost"] / 0.25 / found["done"], rel=0.1)


def test_network_time_adds_to_latency_but_not_to_cost() -> None:
    """The network time adds to every latency but not to the cost."""
    calls = function(Every(1.0, 10.0), Linear(0.1, 0.0), slo_s=0.105)
    near, far = (
        run(scenario(calls, horizon_s=20.0), Constant(Constant.Params()), network_s=network_s)
        for network_s in (0.0, 0.01)
    )
    assert 100.0 == pytest.approx(near["latency_ms"]["mean"])
    assert 110.0 == pytest.approx(far["latency_ms"]["mean"])
    assert (0.0, 1.0) == (near["slo_miss_ratio"], far["slo_miss_ratio"])
    assert near["cost"] == far["cost"]


def test_execution_factor_scales_times_and_is_learned_by_policies() -> None:
    """Executions take the factor longer, with and without a quota, and policies learn it."""
    planned_s: list[float] = []

    class Watching(Constant):
        def plan(self, snapshot: Snapshot) -> PlanningResult:
            planned_s.extend(load.model.predict(1, 1.0, 0.0) or 0.0 for load in snapshot.functions)
            return super().plan(snapshot)

    calls = function(Every(1.0, 10.0), Linear(0.1, 0.0), slo_s=1.0)
    slow = run(scenario(calls, horizon_s=20.0), Watching(Constant.Params()), exec_factor=1.5)
    assert 150.0 == pytest.approx(slow["latency_ms"]["mean"])
    assert 0.1 == planned_s[0] < planned_s[-1] <= 0.15
    part = function(Every(1.0, 10.0), Linear(0.1, 0.0, cpu=0.25), slo_s=1.0)
    quarter = Constant(Constant.Params(), cpu=0.25)
    even, shared = (
        run(scenario(part, horizon_s=20.0), quarter, exec_factor=1.5, quota=quota)
        for quota in (None, EXACT)
    )
    assert 150.0 == pytest.approx(even["latency_ms"]["mean"])
    period_ms, share_ms = 10.0, 2.5  # of which one may be left when a request comes
    assert 150.0 == pytest.approx(shared["latency_ms"]["mean"], abs=period_ms + share_ms)
