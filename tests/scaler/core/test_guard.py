"""What a policy is kept from."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.core.guard import Guard
from scaler.core.policy import Planning
from scaler.core.restraint import Limits
from scaler.core.snapshot import AppLoad
from tests.scaler.core.wishes import in_force, wanted
from tests.scaler.views import counts, servers, snapshot, view

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.plan import Plan
    from scaler.core.snapshot import FunctionView, Snapshot

FREE = Limits(window_s=0.0, growth_least=10**6, shrink=1.0)


class Wishes:
    """A policy that wants what it is told to want."""

    def __init__(self, unplaced: Mapping[str, float] | None = None) -> None:
        self.plans: dict[str, object] = {}
        self.unplaced = unplaced or {}
        self.seen: list[str] = []

    def plan(self, snapshot: Snapshot) -> Planning:
        self.seen = [view.name for view in snapshot.functions]
        return Planning(self.plans, self.unplaced)  # type: ignore[arg-type]


class Failing:
    """A policy with a bug."""

    def plan(self, snapshot: Snapshot) -> Planning:
        raise ZeroDivisionError(str(snapshot.now_s))


def guarded(
    policy: Wishes, limits: Limits, wish: Plan, before: FunctionView, now_s: float = 0.0
) -> Plan:
    """What becomes of a wish."""
    policy.plans = {"classify": wish}
    return dict(Guard(policy, limits).plan(snapshot(before, now_s=now_s)).plans)["classify"]


def test_a_sound_plan_passes() -> None:
    """Nothing is changed but the version, and nothing is noted."""
    policy = Wishes()
    policy.plans = {"classify": wanted(3)}
    guard = Guard(policy, FREE)
    planning = guard.plan(snapshot(view(50)))
    assert {"classify": wanted(3)} == planning.plans
    assert {} == guard.notes


def test_versions_follow_the_plan_in_force() -> None:
    """A change has the next version, no change the same plan."""
    before = dataclasses.replace(wanted(3), version=7)
    assert 8 == guarded(Wishes(), FREE, wanted(4), in_force(before)).version
    assert before is guarded(Wishes(), FREE, wanted(3), in_force(before))


@pytest.mark.parametrize("rate", [math.nan, math.inf, -1.0])
def test_what_is_no_rate_keeps_the_plan(rate: float) -> None:
    """The policy never sees the function, and the others are planned as ever."""
    policy = Wishes()
    policy.plans = {"other": wanted(1, name="other")}
    guard = Guard(policy, FREE)
    planning = guard.plan(snapshot(view(rate), view(1, name="other")))
    assert ["other"] == policy.seen
    assert {"other"} == set(planning.plans)
    assert "its rates are" in guard.notes["classify"][0]


def test_a_missing_model_or_objective_keeps_the_plan() -> None:
    """Neither can be planned for."""
    guard = Guard(Wishes(), FREE)
    nothing = dataclasses.replace(view(1), model=None)  # type: ignore[arg-type]
    late = dataclasses.replace(view(1, name="b"), apps=(AppLoad("web", math.nan, 1.0),))
    assert {} == guard.plan(snapshot(nothing, late)).plans
    assert ["it has no latency model"] == guard.notes["classify"]
    assert "its objectives are" in guard.notes["b"][0]


def test_a_policy_that_raises_keeps_all_plans() -> None:
    """With the reason."""
    guard = Guard(Failing())
    planning = guard.plan(snapshot(view(1)))
    assert ({}, {}) == (planning.plans, planning.unplaced)
    failure = guard.failures["classify"]
    assert re.fullmatch(r"ZeroDivisionError: 0\.0 \(test_guard\.py:\d+\)", failure)


def test_plans_for_nobody_are_dropped() -> None:
    """So are plans of another function, and what is no plan."""
    policy = Wishes({"gone": 5.0, "classify": math.nan})
    policy.plans = {"gone": wanted(1, name="gone"), "classify": wanted(1, name="gone")}
    planning = Guard(policy, FREE).plan(snapshot(view(1)))
    assert ({}, {}) == (planning.plans, planning.unplaced)
    policy.plans = {"classify": "many"}
    assert {} == Guard(policy, FREE).plan(snapshot(view(1))).plans


def test_bounds() -> None:
    """The least efficient go first where there are too many; the first class fills up."""
    many = dataclasses.replace(view(50), max_instances=3)
    few = dataclasses.replace(view(50), min_instances=5)
    assert {"b4-c4-g20": 2, "b1-c2": 1} == counts(guarded(Wishes(), FREE, wanted(9, large=2), many))
    assert {"b4-c4-g20": 4, "b1-c2": 1} == counts(guarded(Wishes(), FREE, wanted(1), few))


def test_what_has_no_room_is_taken_off() -> None:
    """Eight cores hold four small instances; the rest of the rate is unplaced."""
    policy = Wishes()
    policy.plans = {"classify": wanted(10)}
    guard = Guard(policy, FREE)
    planning = guard.plan(snapshot(view(60), cluster=servers(1, 8, 0)))
    assert {"b1-c2": 4} == counts(planning.plans["classify"])
    assert pytest.approx(36) == planning.unplaced["classify"]
    assert "no room for" in guard.notes["classify"][0]


def test_what_is_there_needs_no_room() -> None:
    """Only new instances are placed: a full server keeps what it has."""
    cluster = servers(1, 8, 0)
    for _ in range(4):
        cluster.place(view(1).model.resources(1, 2.0, 0.0), 0)
    policy = Wishes()
    policy.plans = {"classify": wanted(4)}
    planning = Guard(policy, FREE).plan(snapshot(in_force(wanted(4)), cluster=cluster))
    assert {"b1-c2": 4} == counts(planning.plans["classify"])


@given(
    wishes=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 10)), min_size=1, max_size=12),
    most=st.integers(1, 20),
    shrink=st.floats(0.1, 1.0),
)
def test_whatever_is_wanted_is_within_the_limits(
    wishes: list[tuple[int, int]], most: int, shrink: float
) -> None:
    """Bounds, steps and versions hold over any history."""
    policy, limits = Wishes(), Limits(window_s=15, growth=1.0, growth_least=4, shrink=shrink)
    guard = Guard(policy, limits)
    there = dataclasses.replace(view(50), max_instances=most)
    for number, (small, large) in enumerate(wishes):
        policy.plans = {"classify": wanted(small, large=large)}
        planning = guard.plan(snapshot(there, now_s=10.0 * number))
        plan, before = planning.plans["classify"], there.plan
        total, was = counts(plan).total(), counts(before).total() if before else 0
        assert total <= most
        assert total <= max(was + max(4, was), was)
        assert before is None or plan == before or plan.version == before.version + 1
        there = in_force(plan, max_instances=most)
