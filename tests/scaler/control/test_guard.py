"""The guard, which makes plans from proposals and protects the system from the policy."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.plan import Plan
from carpool.prewarm_windows import Windows
from carpool.scaling import Application, Instances, PerFunctionPolicy, Proposal
from scaler.control.guard import Guard
from scaler.control.stabilization import StabilizationLimits
from tests.scaler.loads import FREE, counts, load, servers, size, snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.scaling import ClusterView, FunctionLoad

SMALL = dataclasses.replace(size(1, 2.0, 0.0), rate_rps=6.0)
LARGE = dataclasses.replace(size(4, 4.0, 20.0), rate_rps=45.0)


class Wishes:
    """A policy that returns the given proposals."""

    def __init__(self, **wishes: object) -> None:
        self.wishes: dict[str, Any] = wishes
        self.seen: list[str] = []

    def propose(self, loads: Sequence[FunctionLoad], cluster: ClusterView) -> dict[str, Proposal]:
        self.seen = [load.name for load in loads]
        for each in loads:  # whatever it does to what it is shown
            cluster.place_up_to(each.model.resources(1, 2.0, 0.0), 100)
        return self.wishes


def proposal(**fields: Any) -> Proposal:
    """Return a proposal of one small instance with these fields, which may have any type."""
    return Proposal(**{"instances": {SMALL: 1}, **fields})


class Failing:
    """A policy that always raises an error."""

    def propose(self, loads: Sequence[FunctionLoad], cluster: ClusterView) -> dict[str, Proposal]:
        raise ZeroDivisionError(str(loads[0].now_s) * len(cluster.nodes or [0]))


class Picky(PerFunctionPolicy):
    """A policy for one function at a time that raises an error for the function ``bad``."""

    def propose_one(self, load: FunctionLoad) -> Proposal:
        if load.name == "bad":
            message = "no such thing"
            raise LookupError(message)
        return Proposal({load.sizes[0]: 1})


def wanted(small: int, *, large: int = 0) -> Proposal:
    """Return a proposal of instances on two cores and on a GPU."""
    return Proposal({SMALL: small, LARGE: large})


def made(
    proposal: Proposal, load: FunctionLoad, limits: StabilizationLimits = FREE, **fields: Any
) -> Plan:
    """Return the plan that the guard makes from a proposal."""
    guard = Guard(Wishes(classify=proposal), limits)
    planning = guard.plan(snapshot(load, **fields))
    assert {} == planning.failures
    return planning.plans["classify"]


def in_force(plan: Plan, **others: Any) -> FunctionLoad:
    """Return the load of a function with this plan and all of its instances."""
    there = {kind.name: Instances(ready=kind.replicas) for kind in plan.classes}
    return dataclasses.replace(load(50), **{"plan": plan, "instances": there, **others})


def test_a_proposal_becomes_a_plan() -> None:
    """Classes are named by their sizes, with larger GPU shares first."""
    guard = Guard(Wishes(classify=wanted(3, large=1)), FREE)
    planning = guard.plan(snapshot(load(50)))
    plan = planning.plans["classify"]
    assert ("classify", 1, "wishes") == (plan.function, plan.version, plan.policy)
    assert [("b4-c4-g20", 1, 45.0), ("b1-c2", 3, 6.0)] == [
        (kind.name, kind.replicas, kind.rate_high) for kind in plan.classes
    ]
    assert {} == planning.notes
    assert {} == planning.failures


def test_default_routes_and_waits() -> None:
    """By default, requests are divided by capacity, and waits leave time for two executions."""
    apps = (Application("web", 0.2, 40.0), Application("mail", 0.5, 10.0))
    plan = made(wanted(3, large=1), dataclasses.replace(load(50), apps=apps))
    others, mail = plan.routes
    assert ("*", "mail") == (others.app, mail.app)
    assert pytest.approx({"b4-c4-g20": 45 / 63, "b1-c2": 18 / 63}) == others.weights
    assert pytest.approx(0.9 * 0.2 - 2 * LARGE.exec_s, abs=1e-9) == others.max_wait_s
    assert pytest.approx(0.3) == mail.max_wait_s - others.max_wait_s


def test_policy_sets_routes_and_waits() -> None:
    """An application that the policy names gets the proposed instances and wait."""
    apps = (Application("web", 0.2, 40.0), Application("mail", 0.2, 10.0))
    proposal = dataclasses.replace(
        wanted(3, large=1),
        shares={"*": {SMALL: 1.0}, "mail": {LARGE: 2.0}},
        wait_s={"*": 0.0, "mail": 0.01},
    )
    others, mail = made(proposal, dataclasses.replace(load(50), apps=apps)).routes
    assert ("*", {"b1-c2": 1.0}, 0.0) == (others.app, others.weights, others.max_wait_s)
    assert ("mail", {"b4-c4-g20": 1.0}, 0.01) == (mail.app, mail.weights, mail.max_wait_s)


def test_pools_of_same_size_keep_their_class_names() -> None:
    """A second pool of a size has a numbered class, whose number stays when the first pool ends."""
    second = dataclasses.replace(SMALL, pool=1)
    first = made(Proposal({SMALL: 2, second: 3}), load(20))
    assert {"b1-c2": 2, "b1-c2-2": 3} == counts(first)
    later = made(Proposal({SMALL: 0, second: 3}), in_force(first))
    assert {"b1-c2-2": 3} == counts(later)
    running = in_force(first).running
    assert {SMALL: 2, second: 3} == {each: there.ready for each, there in running.items()}


def test_version_changes_only_with_plan() -> None:
    """A changed plan has the next version, and an unchanged one stays the same object."""
    before = dataclasses.replace(made(wanted(3), load(50)), version=7)
    assert 8 == made(wanted(4), in_force(before)).version
    assert before is made(wanted(3), in_force(before))


def test_changed_plan_has_term_of_current_leader() -> None:
    """After a takeover, a changed plan has the new term, and an unchanged one the old term."""
    before = Guard(Wishes(classify=wanted(3)), FREE, 4).plan(snapshot(load(50))).plans["classify"]
    assert (4, 1) == before.full_version
    policy = Wishes(classify=wanted(3))
    guard = Guard(policy, FREE, 9)
    assert before is guard.plan(snapshot(in_force(before))).plans["classify"]
    policy.wishes = {"classify": wanted(4)}
    assert (9, 2) == guard.plan(snapshot(in_force(before))).plans["classify"].full_version


def test_keep_alive_is_from_policy_or_windows() -> None:
    """The policy's keep-alive time applies, or else the prewarm policy's to the last instance."""
    idle = dataclasses.replace(load(50), windows=Windows(60.0, 300.0))
    plan = made(wanted(3), idle)
    assert (60.0, 300.0, True) == (plan.prewarm_s, plan.keep_alive_s, plan.last_only)
    named = made(dataclasses.replace(wanted(3), keep_alive_s=20.0), idle)
    assert (0.0, 20.0, False) == (named.prewarm_s, named.keep_alive_s, named.last_only)
    neither = made(wanted(3), load(50))
    assert (0.0, None, False) == (neither.prewarm_s, neither.keep_alive_s, neither.last_only)
    assert neither == dataclasses.replace(made(wanted(3), in_force(plan)), version=1)


def test_changed_windows_change_plan() -> None:
    """Changed windows change the plan even if the policy fails; unchanged ones do not."""
    before = made(wanted(3), dataclasses.replace(load(50), windows=Windows(0.0, 300.0)))
    same = in_force(before, windows=Windows(0.0, 300.0))
    assert before is made(wanted(3), same)
    for policy in (Wishes(classify=wanted(3)), Failing()):
        moved = in_force(before, windows=Windows(0.0, 330.0))
        after = Guard(policy, FREE).plan(snapshot(moved)).plans["classify"]
        assert dataclasses.replace(before, version=2, keep_alive_s=330.0) == after
    assert {} == Guard(Failing(), FREE).plan(snapshot(same)).plans


@pytest.mark.parametrize("rate", [math.nan, math.inf, -1.0])
def test_invalid_rate_keeps_plan(rate: float) -> None:
    """The policy does not see a function with an invalid rate; others are planned as usual."""
    policy = Wishes(other=wanted(1))
    guard = Guard(policy, FREE)
    planning = guard.plan(snapshot(load(rate), load(1, name="other")))
    assert ["other"] == policy.seen
    assert {"other"} == set(planning.plans)
    assert "its rates are" in planning.notes["classify"][0]


def test_a_missing_model_or_objective_keeps_the_plan() -> None:
    """A function without a latency model or objective keeps its plan and gets a note."""
    guard = Guard(Wishes(), FREE)
    nothing = dataclasses.replace(load(1), model=None)  # type: ignore[arg-type]
    late = dataclasses.replace(load(1, name="b"), apps=(Application("web", math.nan, 1.0),))
    planning = guard.plan(snapshot(nothing, late))
    assert {} == planning.plans
    assert ["it has no latency model"] == planning.notes["classify"]
    assert "its objectives are" in planning.notes["b"][0]


def test_a_policy_that_raises_keeps_all_plans() -> None:
    """If the policy raises an error, all plans stay and the reason is reported."""
    guard = Guard(Failing())
    planning = guard.plan(snapshot(load(1)))
    assert ({}, {}) == (planning.plans, planning.unplaced)
    failure = planning.failures["classify"]
    assert re.fullmatch(r"ZeroDivisionError: 0\.0 \(test_guard\.py:\d+\)", failure)


def test_policy_error_for_one_function_does_not_affect_others() -> None:
    """If a policy for single functions fails for one function, the others are planned as usual."""
    guard = Guard(Picky(Picky.Params()), FREE)
    planning = guard.plan(snapshot(load(1, name="bad"), load(1)))
    assert {"classify"} == set(planning.plans)
    assert planning.failures["bad"].startswith("LookupError: no such thing (test_guard.py:")


def test_policy_is_not_called_if_no_size_meets_objective() -> None:
    """If no size meets the objective, the policy is not called and all of the rate is unplaced."""
    guard = Guard(Picky(Picky.Params()), FREE)
    planning = guard.plan(snapshot(load(7, name="bad", slo_s=0.001)))
    assert ({}, {"bad": 7}, {}) == (planning.plans, planning.unplaced, planning.failures)


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ("many", "it proposes 'many', which is not a Proposal"),
        (Proposal({SMALL: math.nan}), "it wants nan instances, expected a whole number"),  # type: ignore[dict-item]
        (Proposal({SMALL: -1}), "it wants -1 instances, expected 0 to 100000"),
        (Proposal({dataclasses.replace(SMALL, cpu=3.0): 1}), "a size that was not offered"),
        (Proposal({dataclasses.replace(SMALL, variant="x"): 1}), "a size that was not offered"),
        (Proposal({dataclasses.replace(SMALL, rate_rps=math.nan): 1}), "rate_rps = nan"),
        (Proposal({"b1-c2": 1}), "'b1-c2', which is not a Size"),  # type: ignore[dict-item]
        (Proposal({SMALL: 1}, wait_s=math.nan), "its wait_s is nan, expected seconds"),
        (Proposal({SMALL: 1}, shares={"*": {LARGE: 1.0}}), "not among its instances"),
        (Proposal({SMALL: 1}, shares={"*": {SMALL: math.nan}}), "the shares of * are [nan]"),
        (Proposal({SMALL: 1}, keep_alive_s=math.nan), "its keep_alive_s is nan, expected seconds"),
        (Proposal({SMALL: 1}, unserved_rps=math.nan), "unserved_rps is nan"),
        (proposal(instances=[(SMALL, 2)]), "expected a mapping of Sizes to whole numbers"),
        (proposal(instances=None), "its instances is None, expected a mapping of Sizes"),
        (proposal(shares=[SMALL]), "expected a mapping of applications to numbers by Size"),
        (proposal(shares={"*": 1.0}), "the shares of * are 1.0, expected numbers by Size"),
        (proposal(shares={"*": {SMALL: "1"}}), "expected numbers by Size"),
        (proposal(instances={SMALL: True}), "it wants True instances, expected a whole number"),
        (proposal(instances={SMALL: 1.5}), "it wants 1.5 instances, expected a whole number"),
        (proposal(instances={dataclasses.replace(SMALL, batch="8"): 1}), "has batch = '8'"),  # type: ignore[arg-type]
        (proposal(wait_s="10ms"), "its wait_s is '10ms', expected seconds"),
        (proposal(wait_s={"web": "10ms"}), "its wait_s is {'web': '10ms'}, expected seconds"),
        (proposal(keep_alive_s="1m"), "its keep_alive_s is '1m', expected seconds of at"),
        (proposal(unserved_rps=None), "its unserved_rps is None, expected a number"),
        (proposal(explain="a jump"), "its explain is 'a jump', expected a list of sentences"),
        (proposal(explain=[3]), "its explain is [3], expected a list of sentences"),
        (proposal(predicted=3), "its predicted is 3, expected a Predicted, or None"),
        (proposal(on_offer=None), "its on_offer is None, expected a list of Sizes"),
    ],
)
def test_invalid_proposal_keeps_plan(wish: object, said: str) -> None:
    """An invalid proposal is reported and keeps the plan; other functions are planned as usual."""
    guard = Guard(Wishes(classify=wish, other=wanted(1)), FREE)
    planning = guard.plan(snapshot(load(1), load(1, name="other")))
    assert {"other"} == set(planning.plans)
    assert {"classify"} == set(planning.failures)
    assert said in planning.failures["classify"]
    assert {} == planning.unplaced


def test_numbers_of_numpy_are_accepted() -> None:
    """Policies that compute with NumPy return its numbers, which become Python's own."""
    half = np.float32(0.5)
    shares = {"*": {SMALL: half, LARGE: half}}
    there = Proposal({SMALL: np.int64(2), LARGE: np.int8(1)}, half, shares, keep_alive_s=half)  # type: ignore[dict-item, arg-type]
    plan = made(there, load(1))
    assert {"b4-c4-g20": 1, "b1-c2": 2} == counts(plan)
    assert plan == Plan.from_json(plan.to_json())


def test_bounds() -> None:
    """Above the maximum the least efficient go first; below the minimum the first class grows."""
    many = dataclasses.replace(load(50), max_instances=3)
    few = dataclasses.replace(load(50), min_instances=5)
    assert {"b4-c4-g20": 2, "b1-c2": 1} == counts(made(wanted(9, large=2), many))
    assert {"b4-c4-g20": 4, "b1-c2": 1} == counts(made(wanted(1), few))
    guard = Guard(Wishes(classify=wanted(1)), FREE)
    planning = guard.plan(snapshot(few))
    said = "the policy wants 1 instance of the function, and its minimum is 5"
    assert [said] == planning.notes["classify"]


def test_maximum_keeps_instances_for_every_application() -> None:
    """An application whose instances exceed the maximum is served by the remaining ones."""
    shares = {"web": {SMALL: 1.0}, "batch": {LARGE: 1.0}}
    apps = (Application("web", 5.0, 0.2), Application("batch", 45.0, 0.2))
    there = dataclasses.replace(load(50), apps=apps, max_instances=1)
    plan = made(Proposal({SMALL: 1, LARGE: 1}, shares=shares), there)
    assert {"b4-c4-g20": 1} == counts(plan)
    assert [{"b4-c4-g20": 1.0}] * len(plan.routes) == [route.weights for route in plan.routes]


def test_rate_above_capacity_is_unplaced() -> None:
    """The rate above the capacity of the instances is unplaced, whatever the policy reports."""
    planning = Guard(Wishes(classify=wanted(2)), FREE).plan(snapshot(load(50)))
    assert pytest.approx(38) == planning.unplaced["classify"]


def test_instances_without_room_are_removed_from_plan() -> None:
    """Eight cores hold four small instances, and the rest of the rate is unplaced."""
    guard = Guard(Wishes(classify=wanted(10)), FREE)
    planning = guard.plan(snapshot(load(60), cluster=servers(1, 8, 0)))
    assert {"b1-c2": 4} == counts(planning.plans["classify"])
    assert pytest.approx(36) == planning.unplaced["classify"]
    assert "no capacity for 6 x b1-c2" == planning.notes["classify"][0]
    assert "There is no capacity for 6 more." in planning.plans["classify"].explain


def test_application_without_room_uses_other_instances() -> None:
    """Without a GPU server, the requests of both applications go to instances on cores."""
    shares = {"web": {SMALL: 1.0}, "batch": {LARGE: 1.0}}
    apps = (Application("web", 5.0, 0.2), Application("batch", 45.0, 0.2))
    there = dataclasses.replace(load(50), apps=apps)
    proposal = Proposal({SMALL: 1, LARGE: 1}, shares=shares)
    plan = made(proposal, there, cluster=servers(1, 8, 0))
    assert {"b1-c2": 1} == counts(plan)
    assert [{"b1-c2": 1.0}] * len(plan.routes) == [route.weights for route in plan.routes]
    roomy = made(proposal, there, cluster=servers(1, 8, 1))
    assert [{"b1-c2": 1.0}, {"b4-c4-g20": 1.0}] == [route.weights for route in roomy.routes]


def test_existing_instances_need_no_room() -> None:
    """Only new instances are placed, so a full server keeps its instances."""
    cluster = servers(1, 8, 0)
    for _ in range(4):
        cluster.place(load(1).model.resources(1, 2.0, 0.0), 0)
    plan = made(wanted(4), in_force(made(wanted(4), load(50))), cluster=cluster)
    assert {"b1-c2": 4} == counts(plan)


def test_first_plan_has_no_growth_limit() -> None:
    """A plan at the beginning, when nothing runs yet, is not limited in its growth."""
    limits = StabilizationLimits(growth_least=2)
    assert 2 == counts(made(wanted(9), load(50), limits)).total()
    began = dataclasses.replace(snapshot(load(50)), beginning=True)
    planning = Guard(Wishes(classify=wanted(9)), limits).plan(began)
    assert 9 == counts(planning.plans["classify"]).total()


@given(
    wishes=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 10)), min_size=1, max_size=12),
    most=st.integers(1, 20),
    shrink=st.floats(0.1, 1.0),
)
def test_plans_are_within_limits_for_any_proposals(
    wishes: list[tuple[int, int]], most: int, shrink: float
) -> None:
    """Bounds, growth limits and version numbers hold for any sequence of proposals."""
    policy, limits = (
        Wishes(),
        StabilizationLimits(window_s=15, growth=1.0, growth_least=4, shrink=shrink),
    )
    guard = Guard(policy, limits)
    there = dataclasses.replace(load(50), max_instances=most)
    for number, (small, large) in enumerate(wishes):
        policy.wishes = {"classify": wanted(small, large=large)}
        planning = guard.plan(snapshot(there, now_s=10.0 * number))
        plan, before = planning.plans["classify"], there.plan
        total, was = counts(plan).total(), counts(before).total() if before else 0
        assert total <= most
        assert total <= max(was + max(4, was), was)
        assert before is None or plan == before or plan.version == before.version + 1
        there = in_force(plan, max_instances=most)
