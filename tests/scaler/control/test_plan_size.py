"""How large plans are."""

from __future__ import annotations

from dataclasses import replace

from carpool.plan import OnOffer, Route
from scaler.control import plan_size
from tests.scaler.control.wishes import wanted
from tests.scaler.loads import counts


def test_instances_of_all_classes_are_counted() -> None:
    """How many there are, and what they take: requests per second, or at a time."""
    plan = wanted(3, large=2)
    assert 5 == plan_size.instances(plan)
    assert 3 * 6.0 + 2 * 45.0 == plan_size.taken(plan)
    unsaid = replace(plan, classes=tuple(replace(kind, rate_high=None) for kind in plan.classes))
    assert 3 * 1 + 2 * 4 == plan_size.taken(unsaid)


def test_those_that_take_the_least_go_first() -> None:
    """Of the small ones as many as there are, then of the large; never more than there are."""
    plan = wanted(3, large=2)
    assert {"b4-c4-g20": 2, "b1-c2": 1} == counts(plan_size.without(plan, 2))
    assert {"b4-c4-g20": 1} == counts(plan_size.without(plan, 4))
    assert {} == counts(plan_size.without(plan, 9))
    assert plan == plan_size.less(plan, {})


def test_a_route_without_instances_leads_to_those_that_are_left() -> None:
    """Nothing would answer its requests otherwise; one that keeps an instance stays as it is."""
    plan = wanted(3, large=2)
    own = Route("batch", {"b4-c4-g20": 1.0}, 0.1)
    plan = replace(plan, routes=(*plan.routes, own))
    assert plan.routes == plan_size.without(plan, 2).routes
    fewer = plan_size.without(plan, 3)
    assert (replace(plan.routes[0], weights={"b4-c4-g20": 1.0}), own) == fewer.routes
    assert plan.routes == plan_size.without(plan, 9).routes


def test_a_route_that_had_no_instances_stays() -> None:
    """A policy leads requests to none while nothing suits them: they wait for an instance."""
    plan = wanted(0, large=2)
    assert {"b4-c4-g20": 1} == counts(plan_size.without(plan, 1))
    assert plan.routes == plan_size.without(plan, 1).routes


def test_a_route_leads_only_to_variants_that_are_accurate_enough() -> None:
    """Its requests rather wait for an instance than get a worse answer."""
    plan = wanted(1, large=2)
    offer = OnOffer("b4-c4-g20", "quick", 0.6, 0.1, 1.0, 1.0)
    large, small = plan.classes
    plan = replace(plan, classes=(replace(large, variant="quick"), small), variants=(offer,))
    strict = replace(plan.routes[0], accuracy=0.7)
    for route, weights in ((plan.routes[0], {"b4-c4-g20": 1.0}), (strict, {"b1-c2": 1.0})):
        fewer = plan_size.without(replace(plan, routes=(route,)), 1)
        assert [weights] == [each.weights for each in fewer.routes]
