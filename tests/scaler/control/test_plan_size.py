"""The size of plans: counting and removing instances."""

from __future__ import annotations

from dataclasses import replace

from carpool.plan import OnOffer, Route
from scaler.control import plan_size
from tests.scaler.control.wishes import wanted
from tests.scaler.loads import counts


def test_instances_of_all_classes_are_counted() -> None:
    """Instances are counted, and their capacity is per second, or at a time if unknown."""
    plan = wanted(3, large=2)
    assert 5 == plan_size.instances(plan)
    assert 3 * 6.0 + 2 * 45.0 == plan_size.taken(plan)
    unsaid = replace(plan, classes=tuple(replace(kind, rate_high=None) for kind in plan.classes))
    assert 3 * 1 + 2 * 4 == plan_size.taken(unsaid)


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
