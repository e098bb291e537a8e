"""Differences between plans, as data and as sentences."""

from __future__ import annotations

import dataclasses

from carpool.plan import InstanceClass, Plan, Predicted, Route
from scaler.control.plan_diff import changes, explained

SMALL = InstanceClass("b1-c2", cpu=2.0, batch_size=1, replicas=3)
LARGE = InstanceClass("b4-c1-g10", cpu=1.0, gpu=10.0, batch_size=4, replicas=2)
BEFORE = Plan(
    "f", 1, "infless", (SMALL, LARGE), (Route("*", {"b1-c2": 0.5, "b4-c1-g10": 0.5}, 0.05),)
)


def test_a_first_plan_starts_everything() -> None:
    """A first plan starts all of its classes, each explained in one sentence."""
    assert (
        "Start 3 of b1-c2: 2 cores.",
        "Start 2 of b4-c1-g10: 1 core and 10 % of a GPU, batches of up to 4.",
    ) == explained(None, BEFORE)


def test_predictions_and_explanations_are_no_change() -> None:
    """Other predictions, explanations and versions are no change."""
    after = dataclasses.replace(
        BEFORE, version=2, predicted=Predicted(mean_batch=3.0), explain=("because",)
    )
    assert () == changes(BEFORE, after)
    assert () == explained(BEFORE, after)


def test_only_difference_in_replicas_starts_or_stops() -> None:
    """Only the difference starts or stops, and starts come first."""
    after = dataclasses.replace(
        BEFORE,
        classes=(dataclasses.replace(SMALL, replicas=1), dataclasses.replace(LARGE, replicas=5)),
    )
    assert [("b4-c1-g10", 3, 0), ("b1-c2", 0, 2)] == [
        (change.instance_class.name, change.start, change.stop) for change in changes(BEFORE, after)
    ]


def test_class_with_changed_size_starts_again() -> None:
    """A class with the same name and another size starts again."""
    wider = dataclasses.replace(SMALL, cpu=4.0)
    after = dataclasses.replace(BEFORE, classes=(wider, LARGE))
    assert [(4.0, 3, 0), (2.0, 0, 3)] == [
        (change.instance_class.cpu, change.start, change.stop) for change in changes(BEFORE, after)
    ]


def test_removed_class_stops() -> None:
    """All instances of a class that left the plan stop."""
    after = dataclasses.replace(
        BEFORE, classes=(LARGE,), routes=(Route("*", {"b4-c1-g10": 1.0}, 0.05),)
    )
    (change,) = changes(BEFORE, after)
    assert ("b1-c2", 3) == (change.instance_class.name, change.stop)


def test_changed_routes_and_windows_are_explained() -> None:
    """Changed shares, waits, routes, keep-alive and prewarm times are explained."""
    after = dataclasses.replace(
        BEFORE,
        routes=(
            Route("*", {"b1-c2": 0.2, "b4-c1-g10": 0.8}, 0.03),
            Route("vr", {"b1-c2": 1.0}, 0.0),
        ),
        keep_alive_s=300.0,
        prewarm_s=60.0,
    )
    assert (
        "b1-c2 gets 20 % instead of 50 % of the requests of all other applications.",
        "b4-c1-g10 gets 80 % instead of 50 % of the requests of all other applications.",
        "Requests of all other applications wait at most 30 ms instead of 50 ms.",
        "Requests of vr get a route of their own.",
        "Idle instances stay 300 s instead of permanently.",
        "An instance is loaded again 60 s after a release instead of 0 s.",
    ) == explained(BEFORE, after)
