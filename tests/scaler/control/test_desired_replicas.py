"""The number of wanted instances: keep-alive, prewarming, scale to zero, waiting requests."""

from __future__ import annotations

import pytest

from carpool.plan import InstanceClass, Plan, Route
from carpool.prewarm_windows import Windows
from scaler.control.desired_replicas import ClassInstances, DesiredReplicas, FunctionState
from scaler.control.plan_builder import with_windows


def plan(
    replicas: int = 2, *, keep_alive_s: float | None = None, windows: Windows | None = None
) -> Plan:
    """Return a plan of one class."""
    kind = InstanceClass("a", cpu=1, batch_size=4, replicas=replicas)
    made = Plan("f", 1, "p", (kind,), (Route("*", {"a": 1.0}, 0.0),), keep_alive_s=keep_alive_s)
    return with_windows(made, windows)


def idle(*idle_s: float, loading: int = 0) -> dict[str, ClassInstances]:
    """Return instances of the class with these idle times."""
    return {"a": ClassInstances(idle_s, loading)}


def test_planned_instances_stay_without_keep_alive() -> None:
    """Without a keep-alive time, all planned instances stay however long they are idle."""
    assert {"a": 2} == DesiredReplicas().wanted(plan(), FunctionState(idle(999, 999), idle_s=999))


def test_instance_is_removed_after_keep_alive_and_counted_once() -> None:
    """An instance idle for longer than the keep-alive time is removed, and counted only once."""
    presence, kept = DesiredReplicas(), plan(3, keep_alive_s=60)
    assert {"a": 3} == presence.wanted(kept, FunctionState(idle(0, 0, 59)))
    assert {"a": 2} == presence.wanted(kept, FunctionState(idle(0, 0, 61)))
    assert {"a": 2} == presence.wanted(kept, FunctionState(idle(0, 0, 62)))  # still there
    assert {"a": 2} == presence.wanted(kept, FunctionState(idle(0, 0)))
    assert {"a": 1} == presence.wanted(kept, FunctionState(idle(0, 61)))
    assert 2 == presence.asleep


def test_unplanned_instance_stays_for_keep_alive() -> None:
    """Instances of a class that left the plan stay for the keep-alive time."""
    there = {"a": ClassInstances((0.0,)), "old": ClassInstances((10.0, 70.0))}
    assert {"a": 1, "old": 1} == DesiredReplicas().wanted(
        plan(1, keep_alive_s=60), FunctionState(there)
    )


def test_queued_requests_start_required_instances() -> None:
    """Waiting requests wake the needed instances less those loading, and none if one is free."""
    presence, kept = DesiredReplicas(), plan(3, keep_alive_s=60)
    presence.wanted(kept, FunctionState(idle(61, 61, 61)))
    assert {"a": 0} == presence.wanted(kept, FunctionState(idle()))
    assert {"a": 2} == presence.wanted(kept, FunctionState(idle(), queued=5, starving=True))
    loading = FunctionState(idle(loading=2), queued=5, starving=True)
    assert {"a": 2} == presence.wanted(kept, loading)
    assert {"a": 2} == presence.wanted(kept, FunctionState(idle(0.0, 5.0), queued=9))
    assert {"a": 3} == presence.wanted(kept, FunctionState(idle(0.0, 0.0), queued=3))


def test_queued_request_starts_instances_before_prewarm_time() -> None:
    """A waiting request starts instances even before the prewarm time."""
    released = plan(2, windows=Windows(50, 100))
    assert {"a": 0} == DesiredReplicas().wanted(released, FunctionState(idle(), idle_s=9.0))
    waits = FunctionState(idle(), queued=1, starving=True)
    assert {"a": 2} == DesiredReplicas().wanted(released, waits)


@pytest.mark.parametrize(
    ("windows", "idle_s", "expected"),
    [
        (Windows(0, 60), None, 0),
        (Windows(0, 60), 59, 1),
        (Windows(0, 60), 61, 0),
        (Windows(0, None), 1e9, 1),
        (Windows(30, 60), 10, 0),
        (Windows(30, 60), 29, 1),
        (Windows(30, 60), 61, 0),
    ],
)
def test_empty_plan_has_one_instance_within_windows(
    windows: Windows, idle_s: float | None, expected: int
) -> None:
    """A plan of no instances has one within the windows of the prewarm policy, and none outside."""
    state = FunctionState(idle(), idle_s=idle_s, load_s=2)
    assert expected == sum(DesiredReplicas().wanted(plan(0, windows=windows), state).values())


def test_idle_function_beyond_windows_scales_to_zero() -> None:
    """A function idle for longer than its windows has no instances, even if the plan has some."""
    state = FunctionState(idle(90, 90), idle_s=90)
    assert {"a": 0} == DesiredReplicas().wanted(plan(2, windows=Windows(0, 60)), state)


def test_windows_do_not_remove_idle_instances_of_busy_function() -> None:
    """While the function is busy, windows remove no single idle instance."""
    presence, timed = DesiredReplicas(), plan(2, windows=Windows(0, 60))
    assert {"a": 2} == presence.wanted(timed, FunctionState(idle(0, 99, 5)))
    assert 0 == presence.asleep


def test_queued_requests_start_one_instance_for_empty_plan() -> None:
    """With a plan of no instances, waiting requests start one."""
    assert {"a": 1} == DesiredReplicas().wanted(plan(0), FunctionState(queued=3, starving=True))


def test_minimum_instances_are_kept() -> None:
    """The user's minimum number of instances stays awake."""
    state = FunctionState(idle(99, 99, 99), idle_s=99, least=2)
    assert {"a": 2} == DesiredReplicas().wanted(plan(3, keep_alive_s=60), state)
