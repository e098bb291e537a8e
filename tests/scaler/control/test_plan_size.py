"""The size of plans: counting and removing instances."""

from __future__ import annotations

import math
from dataclasses import replace

from carpool.plan import OnOffer, Plan, Route
from scaler.control import plan_size
from tests.scaler.control.wishes import wanted
from tests.scaler.loads import counts


def without_rates(plan: Plan, *names: str) -> Plan:
    """Return the plan with the rates of these classes unknown."""
    classes = (replace(k, rate_high=None) if k.name in names else k for k in plan.classes)
    return replace(plan, classes=tuple(classes))


def test_instances_of_all_classes_are_counted() -> None:
    """Instances and their rates are added up; with one unknown rate there is no limit."""
    plan = wanted(3, large=2)
    assert 5 == plan_size.instances(plan)
    assert 3 * 6.0 + 2 * 45.0 == plan_size.capacity_rps(plan.classes)
    assert math.inf == plan_size.capacity_rps(without_rates(plan, "b1-c2").classes)
    assert 2 * 45.0 == plan_size.capacity_rps(without_rates(wanted(0, large=2), "b1-c2").classes)


def test_classes_are_compared_by_rate_or_else_by_batch_size() -> None:
    """Rates are never compared with batch sizes."""
    plan = wanted(3, large=2)
    assert [45.0, 6.0] == list(plan_size.capacities(plan.classes).values())
    for names in (["b1-c2"], ["b4-c4-g20"], ["b1-c2", "b4-c4-g20"]):
        unknown = without_rates(plan, *names)
        assert [4, 1] == list(plan_size.capacities(unknown.classes).values())


def test_plan_of_unknown_capacity_is_reduced_only_by_removals() -> None:
    """Where the capacity before is unknown, a plan that adds instances is no reduction."""
    before = without_rates(wanted(3, large=2), "b1-c2", "b4-c4-g20")
    for plan, reduced in (
        (wanted(2, large=2), True),
        (wanted(0), True),
        (wanted(3, large=2), False),
        (wanted(2, large=3), False),
    ):
        assert reduced == plan_size.reduces(plan, before)


def test_instances_with_least_capacity_are_removed_first() -> None:
    """Instances with the least capacity are removed first, and never more than exist."""
    plan = wanted(3, large=2)
    assert {"b4-c4-g20": 2, "b1-c2": 1} == counts(plan_size.without(plan, 2))
    assert {"b4-c4-g20": 1} == counts(plan_size.without(plan, 4))
    assert {} == counts(plan_size.without(plan, 9))
    assert plan == plan_size.less(plan, {})


def test_route_that_loses_all_instances_gets_remaining_ones() -> None:
    """A route that loses all of its instances gets the remaining ones; others do not change."""
    plan = wanted(3, large=2)
    own = Route("batch", {"b4-c4-g20": 1.0}, 0.1)
    plan = replace(plan, routes=(*plan.routes, own))
    assert plan.routes == plan_size.without(plan, 2).routes
    fewer = plan_size.without(plan, 3)
    assert (replace(plan.routes[0], weights={"b4-c4-g20": 1.0}), own) == fewer.routes
    assert plan.routes == plan_size.without(plan, 9).routes


def test_route_without_instances_before_is_unchanged() -> None:
    """A route that had no instances before does not change; its requests wait for one."""
    plan = wanted(0, large=2)
    assert {"b4-c4-g20": 1} == counts(plan_size.without(plan, 1))
    assert plan.routes == plan_size.without(plan, 1).routes


def test_route_gets_only_accurate_enough_variants() -> None:
    """Requests wait for an instance rather than get a variant that is not accurate enough."""
    plan = wanted(1, large=2)
    offer = OnOffer("b4-c4-g20", "quick", 0.6, 0.1, 1.0, 1.0)
    large, small = plan.classes
    plan = replace(plan, classes=(replace(large, variant="quick"), small), variants=(offer,))
    strict = replace(plan.routes[0], accuracy=0.7)
    for route, weights in ((plan.routes[0], {"b4-c4-g20": 1.0}), (strict, {"b1-c2": 1.0})):
        fewer = plan_size.without(replace(plan, routes=(route,)), 1)
        assert [weights] == [each.weights for each in fewer.routes]
