"""How large plans are."""

from __future__ import annotations

from dataclasses import replace

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
    assert plan.classes == plan_size.less(plan.classes, {})
