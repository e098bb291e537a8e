"""What the system does with what a policy proposes, and what a policy is kept from."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.prewarm_windows import Windows
from carpool.scaling import Application, Instances, PerFunctionPolicy, Proposal
from scaler.control.guard import Guard
from scaler.control.stabilization import Limits
from tests.scaler.loads import FREE, counts, load, servers, size, snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.plan import Plan
    from carpool.scaling import ClusterView, FunctionLoad

SMALL = dataclasses.replace(size(1, 2.0, 0.0), rate_rps=6.0)
LARGE = dataclasses.replace(size(4, 4.0, 20.0), rate_rps=45.0)


class Wishes:
    """A policy that wants what it is told to want."""

    def __init__(self, **wishes: object) -> None:
        self.wishes: dict[str, Any] = wishes
        self.seen: list[str] = []

    def propose(self, loads: Sequence[FunctionLoad], cluster: ClusterView) -> dict[str, Proposal]:
        self.seen = [load.name for load in loads]
        for each in loads:  # whatever it does to what it is shown
            cluster.place_up_to(each.model.resources(1, 2.0, 0.0), 100)
        return self.wishes


class Failing:
    """A policy with a bug."""

    def propose(self, loads: Sequence[FunctionLoad], cluster: ClusterView) -> dict[str, Proposal]:
        raise ZeroDivisionError(str(loads[0].now_s) * len(cluster.nodes or [0]))


class Picky(PerFunctionPolicy):
    """Looks at one function at a time, and cannot stand one of them."""

    def propose_one(self, load: FunctionLoad) -> Proposal:
        if load.name == "bad":
            message = "no such thing"
            raise LookupError(message)
        return Proposal({load.sizes[0]: 1})


def wanted(small: int, *, large: int = 0) -> Proposal:
    """So many instances on two cores, and some on a GPU."""
    return Proposal({SMALL: small, LARGE: large})


def made(proposal: Proposal, load: FunctionLoad, limits: Limits = FREE, **fields: Any) -> Plan:
    """What becomes of a proposal."""
    guard = Guard(Wishes(classify=proposal), limits)
    plans = guard.plan(snapshot(load, **fields)).plans
    assert {} == guard.failures
    return plans["classify"]


def in_force(plan: Plan, **others: Any) -> FunctionLoad:
    """A function with this plan and all of its instances."""
    there = {kind.name: Instances(ready=kind.replicas) for kind in plan.classes}
    return dataclasses.replace(load(50), **{"plan": plan, "instances": there, **others})


def test_a_proposal_becomes_a_plan() -> None:
    """Classes are named by their sizes, large shares of GPUs first; the rest is the system's."""
    guard = Guard(Wishes(classify=wanted(3, large=1)), FREE)
    plan = guard.plan(snapshot(load(50))).plans["classify"]
    assert ("classify", 1, "wishes") == (plan.function, plan.version, plan.policy)
    assert [("b4-c4-g20", 1, 45.0), ("b1-c2", 3, 6.0)] == [
        (kind.name, kind.replicas, kind.rate_high) for kind in plan.classes
    ]
    assert {} == guard.notes
    assert {} == guard.failures


def test_routes_and_waits_where_the_policy_gives_none() -> None:
    """By what instances take; as long as a batch may wait for the one before it, and be sent."""
    apps = (Application("web", 0.2, 40.0), Application("mail", 0.5, 10.0))
    plan = made(wanted(3, large=1), dataclasses.replace(load(50), apps=apps))
    others, mail = plan.routes
    assert ("*", "mail") == (others.app, mail.app)
    assert pytest.approx({"b4-c4-g20": 45 / 63, "b1-c2": 18 / 63}) == others.weights
    assert pytest.approx(0.9 * 0.2 - 2 * LARGE.exec_s, abs=1e-9) == others.max_wait_s
    assert pytest.approx(0.3) == mail.max_wait_s - others.max_wait_s


def test_routes_and_waits_of_the_policy() -> None:
    """An application that it names gets what it is to get."""
    apps = (Application("web", 0.2, 40.0), Application("mail", 0.2, 10.0))
    proposal = dataclasses.replace(
        wanted(3, large=1),
        shares={"*": {SMALL: 1.0}, "mail": {LARGE: 2.0}},
        wait_s={"*": 0.0, "mail": 0.01},
    )
    others, mail = made(proposal, dataclasses.replace(load(50), apps=apps)).routes
    assert ("*", {"b1-c2": 1.0}, 0.0) == (others.app, others.weights, others.max_wait_s)
    assert ("mail", {"b4-c4-g20": 1.0}, 0.01) == (mail.app, mail.weights, mail.max_wait_s)


def test_pools_of_one_size_are_classes_of_their_own_whose_names_stay() -> None:
    """The second is numbered, and keeps its number when the first goes."""
    second = dataclasses.replace(SMALL, pool=1)
    first = made(Proposal({SMALL: 2, second: 3}), load(20))
    assert {"b1-c2": 2, "b1-c2-2": 3} == counts(first)
    later = made(Proposal({SMALL: 0, second: 3}), in_force(first))
    assert {"b1-c2-2": 3} == counts(later)
    running = in_force(first).running
    assert {SMALL: 2, second: 3} == {each: there.ready for each, there in running.items()}


def test_versions_follow_the_plan_in_force() -> None:
    """A change has the next version, no change the same plan."""
    before = dataclasses.replace(made(wanted(3), load(50)), version=7)
    assert 8 == made(wanted(4), in_force(before)).version
    assert before is made(wanted(3), in_force(before))


def test_a_plan_that_changes_has_the_term_of_who_made_it() -> None:
    """After another scaler has taken over; a plan that stays is still the other's."""
    before = Guard(Wishes(classify=wanted(3)), FREE, 4).plan(snapshot(load(50))).plans["classify"]
    assert (4, 1) == before.full_version
    policy = Wishes(classify=wanted(3))
    guard = Guard(policy, FREE, 9)
    assert before is guard.plan(snapshot(in_force(before))).plans["classify"]
    policy.wishes = {"classify": wanted(4)}
    assert (9, 2) == guard.plan(snapshot(in_force(before))).plans["classify"].full_version


def test_how_long_instances_are_kept() -> None:
    """As the policy wants; where it names no time, as the prewarm policy says of the last one."""
    idle = dataclasses.replace(load(50), windows=Windows(60.0, 300.0))
    plan = made(wanted(3), idle)
    assert (60.0, 300.0, True) == (plan.prewarm_s, plan.keep_alive_s, plan.last_only)
    named = made(dataclasses.replace(wanted(3), keep_alive_s=20.0), idle)
    assert (0.0, 20.0, False) == (named.prewarm_s, named.keep_alive_s, named.last_only)
    neither = made(wanted(3), load(50))
    assert (0.0, None, False) == (neither.prewarm_s, neither.keep_alive_s, neither.last_only)
    assert neither == dataclasses.replace(made(wanted(3), in_force(plan)), version=1)


def test_windows_that_move_make_another_plan() -> None:
    """Even where the policy fails, which has nothing to do with them; others make none."""
    before = made(wanted(3), dataclasses.replace(load(50), windows=Windows(0.0, 300.0)))
    same = in_force(before, windows=Windows(0.0, 300.0))
    assert before is made(wanted(3), same)
    for policy in (Wishes(classify=wanted(3)), Failing()):
        moved = in_force(before, windows=Windows(0.0, 330.0))
        after = Guard(policy, FREE).plan(snapshot(moved)).plans["classify"]
        assert dataclasses.replace(before, version=2, keep_alive_s=330.0) == after
    assert {} == Guard(Failing(), FREE).plan(snapshot(same)).plans


@pytest.mark.parametrize("rate", [math.nan, math.inf, -1.0])
def test_what_is_no_rate_keeps_the_plan(rate: float) -> None:
    """The policy never sees the function, and the others are planned as usual."""
    policy = Wishes(other=wanted(1))
    guard = Guard(policy, FREE)
    planning = guard.plan(snapshot(load(rate), load(1, name="other")))
    assert ["other"] == policy.seen
    assert {"other"} == set(planning.plans)
    assert "its rates are" in guard.notes["classify"][0]


def test_a_missing_model_or_objective_keeps_the_plan() -> None:
    """Neither can be planned for."""
    guard = Guard(Wishes(), FREE)
    nothing = dataclasses.replace(load(1), model=None)  # type: ignore[arg-type]
    late = dataclasses.replace(load(1, name="b"), apps=(Application("web", math.nan, 1.0),))
    assert {} == guard.plan(snapshot(nothing, late)).plans
    assert ["it has no latency model"] == guard.notes["classify"]
    assert "its objectives are" in guard.notes["b"][0]


def test_a_policy_that_raises_keeps_all_plans() -> None:
    """With the reason."""
    guard = Guard(Failing())
    planning = guard.plan(snapshot(load(1)))
    assert ({}, {}) == (planning.plans, planning.unplaced)
    failure = guard.failures["classify"]
    assert re.fullmatch(r"ZeroDivisionError: 0\.0 \(test_guard\.py:\d+\)", failure)


def test_what_a_policy_raises_for_one_function_costs_the_others_nothing() -> None:
    """One that looks at one function at a time is asked for each by itself."""
    guard = Guard(Picky(Picky.Params()), FREE)
    planning = guard.plan(snapshot(load(1, name="bad"), load(1)))
    assert {"classify"} == set(planning.plans)
    assert guard.failures["bad"].startswith("LookupError: no such thing (test_guard.py:")


def test_where_no_size_meets_the_objective_the_policy_is_not_called() -> None:
    """There is nothing to choose from; all of the rate is unplaced."""
    guard = Guard(Picky(Picky.Params()), FREE)
    planning = guard.plan(snapshot(load(7, name="bad", slo_s=0.001)))
    assert ({}, {"bad": 7}, {}) == (planning.plans, planning.unplaced, guard.failures)


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ("many", "it proposes 'many', which is no Proposal"),
        (Proposal({SMALL: math.nan}), "it wants nan instances, expected a whole number"),  # type: ignore[dict-item]
        (Proposal({SMALL: -1}), "it wants -1 instances, expected 0 to 100000"),
        (Proposal({dataclasses.replace(SMALL, cpu=3.0): 1}), "a size that was not offered"),
        (Proposal({dataclasses.replace(SMALL, variant="x"): 1}), "a size that was not offered"),
        (Proposal({dataclasses.replace(SMALL, rate_rps=math.nan): 1}), "rate_rps = nan"),
        (Proposal({"b1-c2": 1}), "'b1-c2', which is no Size"),  # type: ignore[dict-item]
        (Proposal({SMALL: 1}, wait_s=math.nan), "routes[0].max_wait_s = 'NaN'"),
        (Proposal({SMALL: 1}, shares={"*": {LARGE: 1.0}}), "not among its instances"),
        (Proposal({SMALL: 1}, shares={"*": {SMALL: math.nan}}), "the shares of * are [nan]"),
        (Proposal({SMALL: 1}, keep_alive_s=math.nan), "keep_alive_s = 'NaN'"),
        (Proposal({SMALL: 1}, unserved_rps=math.nan), "unserved_rps is nan"),
    ],
)
def test_what_cannot_be_a_plan_keeps_the_one_in_force(wish: object, said: str) -> None:
    """The reason is shown, and other functions are planned as usual."""
    guard = Guard(Wishes(classify=wish, other=wanted(1)), FREE)
    planning = guard.plan(snapshot(load(1), load(1, name="other")))
    assert {"other"} == set(planning.plans)
    assert {"classify"} == set(guard.failures)
    assert said in guard.failures["classify"]
    assert {} == planning.unplaced


def test_bounds() -> None:
    """The least efficient go first where there are too many; the first class fills up."""
    many = dataclasses.replace(load(50), max_instances=3)
    few = dataclasses.replace(load(50), min_instances=5)
    assert {"b4-c4-g20": 2, "b1-c2": 1} == counts(made(wanted(9, large=2), many))
    assert {"b4-c4-g20": 4, "b1-c2": 1} == counts(made(wanted(1), few))
    guard = Guard(Wishes(classify=wanted(1)), FREE)
    guard.plan(snapshot(few))
    said = "the policy wants 1 instance of the function, and its minimum is 5"
    assert [said] == guard.notes["classify"]


def test_every_application_keeps_instances_within_the_maximum() -> None:
    """Those of one are removed as the least efficient; its requests go to the others."""
    shares = {"web": {SMALL: 1.0}, "batch": {LARGE: 1.0}}
    apps = (Application("web", 5.0, 0.2), Application("batch", 45.0, 0.2))
    there = dataclasses.replace(load(50), apps=apps, max_instances=1)
    plan = made(Proposal({SMALL: 1, LARGE: 1}, shares=shares), there)
    assert {"b4-c4-g20": 1} == counts(plan)
    assert [{"b4-c4-g20": 1.0}] * len(plan.routes) == [route.weights for route in plan.routes]


def test_what_instances_cannot_take_is_unplaced() -> None:
    """Whatever the policy says of it."""
    planning = Guard(Wishes(classify=wanted(2)), FREE).plan(snapshot(load(50)))
    assert pytest.approx(38) == planning.unplaced["classify"]


def test_what_has_no_room_is_taken_off() -> None:
    """Eight cores hold four small instances; the rest of the rate is unplaced."""
    guard = Guard(Wishes(classify=wanted(10)), FREE)
    planning = guard.plan(snapshot(load(60), cluster=servers(1, 8, 0)))
    assert {"b1-c2": 4} == counts(planning.plans["classify"])
    assert pytest.approx(36) == planning.unplaced["classify"]
    assert "no capacity for" in guard.notes["classify"][0]
    assert "There is no capacity for 6 more." in planning.plans["classify"].explain


def test_an_application_without_room_for_its_instances_gets_the_others() -> None:
    """No server has a GPU, so the requests of both go to instances on cores."""
    shares = {"web": {SMALL: 1.0}, "batch": {LARGE: 1.0}}
    apps = (Application("web", 5.0, 0.2), Application("batch", 45.0, 0.2))
    there = dataclasses.replace(load(50), apps=apps)
    proposal = Proposal({SMALL: 1, LARGE: 1}, shares=shares)
    plan = made(proposal, there, cluster=servers(1, 8, 0))
    assert {"b1-c2": 1} == counts(plan)
    assert [{"b1-c2": 1.0}] * len(plan.routes) == [route.weights for route in plan.routes]
    roomy = made(proposal, there, cluster=servers(1, 8, 1))
    assert [{"b1-c2": 1.0}, {"b4-c4-g20": 1.0}] == [route.weights for route in roomy.routes]


def test_what_is_there_needs_no_room() -> None:
    """Only new instances are placed: a full server keeps what it has."""
    cluster = servers(1, 8, 0)
    for _ in range(4):
        cluster.place(load(1).model.resources(1, 2.0, 0.0), 0)
    plan = made(wanted(4), in_force(made(wanted(4), load(50))), cluster=cluster)
    assert {"b1-c2": 4} == counts(plan)


def test_what_begins_goes_in_no_steps() -> None:
    """Where nothing runs yet, and what is planned is there at once."""
    limits = Limits(growth_least=2)
    assert 2 == counts(made(wanted(9), load(50), limits)).total()
    began = dataclasses.replace(snapshot(load(50)), beginning=True)
    planning = Guard(Wishes(classify=wanted(9)), limits).plan(began)
    assert 9 == counts(planning.plans["classify"]).total()


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
