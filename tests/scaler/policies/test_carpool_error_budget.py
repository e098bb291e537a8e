"""Instances that are kept for the next jump while too many requests are missed."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import pytest

from carpool.plugins import build, resolve
from carpool.scaling import Instances
from scaler.planning.cost import Prices
from scaler.planning.snapshot import Snapshot
from scaler.policies.carpool.error_budget import ErrorBudget
from tests.scaler.loads import counts, guarded, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.plan import Plan
    from carpool.scaling import FunctionLoad

RESERVED = Prices("reserved", cpu_core_s=9e-5, gpu_percent_s=7e-6)
CALM_RPS, JUMP_RPS = 20.0, 2000.0
STEP_S = 0.5


def running(rate_rps: float, now_s: float, plan: Plan) -> FunctionLoad:
    """Return a load whose plan has been carried out."""
    there = {each.name: Instances(each.replicas) for each in plan.classes}
    return dataclasses.replace(load(rate_rps, plan=plan, there=there), now_s=now_s)


def calm_plan() -> Plan:
    """Return the plan for the calm load."""
    policy = guarded(build(resolve("scale", "carpool"), {}))
    return policy.plan(Snapshot(0.0, (load(CALM_RPS),), None, RESERVED)).plans["classify"]


def kept(budget: ErrorBudget, stretches: Sequence[tuple[float, float]], start_s: float) -> float:
    """Return what is kept after stretches of a rate and a number of seconds."""
    plan, now_s, found = calm_plan(), start_s, math.nan
    for rate_rps, length_s in stretches:
        end_s = now_s + length_s
        while now_s < end_s:
            found = budget.kept_rps(running(rate_rps, now_s, plan), 0.5)
            now_s += STEP_S
    return found


def test_nothing_is_kept_without_misses() -> None:
    """A load that instances can execute costs nothing more."""
    assert kept(ErrorBudget(), [(CALM_RPS, 100.0)], 0.0) == 0


def test_part_of_missed_jump_is_kept_until_share_is_permitted() -> None:
    """Half of the jump's rate is kept while over a percent was missed, and then nothing."""
    budget = ErrorBudget()
    assert kept(budget, [(CALM_RPS, 100.0), (JUMP_RPS, 2.0)], 0.0) == JUMP_RPS / 2
    missed = budget.missed
    assert 0 < missed < 2 * JUMP_RPS
    assert kept(budget, [(CALM_RPS, 60.0)], 102.0) == JUMP_RPS / 2
    served_s = missed / 0.01 / CALM_RPS  # until misses are a percent of the calm load
    assert kept(budget, [(CALM_RPS, served_s)], 162.0) == 0


def test_rare_misses_within_the_percentile_keep_nothing() -> None:
    """A jump after so many requests that its misses are permitted costs nothing more."""
    assert kept(ErrorBudget(), [(CALM_RPS, 2000.0), (300.0, 0.5)], 0.0) == 0


def test_instances_are_released_an_hour_after_the_last_miss() -> None:
    """Nothing is kept for longer than an hour, however much was missed."""
    budget = ErrorBudget()
    assert kept(budget, [(JUMP_RPS, 60.0), (0.0, 3500.0)], 0.0) == JUMP_RPS / 2
    assert kept(budget, [(0.0, 200.0)], 3560.0) == 0


def test_next_jump_counts_with_its_own_rate() -> None:
    """A later jump of another rate replaces the last one."""
    budget = ErrorBudget()
    kept(budget, [(JUMP_RPS, 2.0), (CALM_RPS, 100.0)], 0.0)
    assert kept(budget, [(JUMP_RPS / 2, 2.0)], 102.0) == JUMP_RPS / 4


def test_unknown_execution_times_are_no_misses() -> None:
    """Where a plan does not say how long batches take, nothing counts as missed."""
    plan = calm_plan()
    unknown = dataclasses.replace(
        plan, classes=tuple(dataclasses.replace(each, exec_s=None) for each in plan.classes)
    )
    budget = ErrorBudget()
    for now_s in (0.0, 2.0):
        assert budget.kept_rps(running(JUMP_RPS, now_s, unknown), 0.5) == 0


@pytest.mark.parametrize("repay", [0.0, 0.5])
def test_plan_keeps_instances_after_missed_jump(repay: float) -> None:
    """After a missed jump, the plan is larger than for the calm load, and says why; 0 is off."""
    policy = guarded(build(resolve("scale", "carpool"), {"repay": repay}))
    plan = calm = policy.plan(Snapshot(0.0, (load(CALM_RPS),), None, RESERVED)).plans["classify"]
    rates = [CALM_RPS] * 20 + [JUMP_RPS] * 4  # nothing loads meanwhile
    for number, rate_rps in enumerate(rates, 1):
        function = running(rate_rps, number * STEP_S, calm)
        plan = policy.plan(Snapshot(function.now_s, (function,), None, RESERVED)).plans["classify"]
    for number in range(200):
        function = running(CALM_RPS, 20.0 + number * STEP_S, plan)
        plan = policy.plan(Snapshot(function.now_s, (function,), None, RESERVED)).plans["classify"]
    more = counts(plan).total() > counts(calm).total()
    said = any("kept for the next jump" in each for each in plan.explain)
    assert more is said is (repay > 0)
