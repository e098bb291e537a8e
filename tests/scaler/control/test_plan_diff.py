"""What changes from plan to plan."""

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
    """Each class in a sentence an operator can read."""
    assert (
        "Start 3 of b1-c2: 2 cores.",
        "Start 2 of b4-c1-g10: 1 core and 10 % of a GPU, batches of up to 4.",
    ) == explained(None, BEFORE)


def test_the_same_plan_changes_nothing() -> None:
    """Predictions, words and versions are no change."""
    after = dataclasses.replace(
        BEFORE, version=2, predicted=Predicted(mean_batch=3.0), explain=("because",)
    )
    assert () == changes(BEFORE, after)
    assert () == explained(BEFORE, after)


def test_more_and_fewer_of_a_class() -> None:
    """Only the difference starts or stops; what starts comes first."""
    after = dataclasses.replace(
        BEFORE,
        classes=(dataclasses.replace(SMALL, replicas=1), dataclasses.replace(LARGE, replicas=5)),
    )
    assert [("b4-c1-g10", 3, 0), ("b1-c2", 0, 2)] == [
        (change.instance_class.name, change.start, change.stop) for change in changes(BEFORE, after)
    ]


def test_a_class_of_another_size_is_another_class() -> None:
    """A class with the same name and another size is started again."""
    wider = dataclasses.replace(SMALL, cpu=4.0)
    after = dataclasses.replace(BEFORE, classes=(wider, LARGE))
    assert [(4.0, 3, 0), (2.0, 0, 3)] == [
        (change.instance_class.cpu, change.start, change.stop) for change in changes(BEFORE, after)
    ]


def test_a_class_that_is_gone_stops() -> None:
    """All of it."""
    after = dataclasses.replace(
        BEFORE, classes=(LARGE,), routes=(Route("*", {"b4-c1-g10": 1.0}, 0.05),)
    )
    (change,) = changes(BEFORE, after)
    assert ("b1-c2", 3) == (change.instance_class.name, change.stop)


def test_routes_and_windows_are_told() -> None:
    """Shares, waits, routes of their own, keep-alive and prewarm."""
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
        "Idle instances stay 300 s instead of for good.",
        "Load again 60 s after a release instead of 0 s.",
    ) == explained(BEFORE, after)
