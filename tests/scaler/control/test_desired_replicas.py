"""How many instances are to be there: keep-alive, prewarm, scale to zero, waiting requests."""

from __future__ import annotations

import pytest

from carpool.plan import InstanceClass, Plan, Route
from carpool.prewarm_windows import Windows
from scaler.control.desired_replicas import ClassInstances, DesiredReplicas, FunctionState
from scaler.control.plan_builder import with_windows


def plan(
    replicas: int = 2, *, keep_alive_s: float | None = None, windows: Windows | None = None
) -> Plan:
    """A plan of one class."""
    kind = InstanceClass("a", cpu=1, batch_size=4, replicas=replicas)
    made = Plan("f", 1, "p", (kind,), (Route("*", {"a": 1.0}, 0.0),), keep_alive_s=keep_alive_s)
    return with_windows(made, windows)


def idle(*idle_s: float, loading: int = 0) -> dict[str, ClassInstances]:
    """Instances of the class, each idle for so long."""
    return {"a": ClassInstances(idle_s, loading)}


def test_without_a_keep_alive_there_are_as_many_as_planned() -> None:
    """However long they have been idle."""
    assert {"a": 2} == DesiredReplicas().wanted(plan(), FunctionState(idle(999, 999), idle_s=999))


def test_an_instance_goes_when_it_was_idle_for_too_long_and_stays_gone() -> None:
    """It sleeps while it is on its way out, and after; it is not counted twice."""
    presence, kept = DesiredReplicas(), plan(3, keep_alive_s=60)
    assert {"a": 3} == presence.wanted(kept, FunctionState(idle(0, 0, 59)))
    assert {"a": 2} == presence.wanted(kept, FunctionState(idle(0, 0, 61)))
    assert {"a": 2} == presence.wanted(kept, FunctionState(idle(0, 0, 62)))  # still there
    assert {"a": 2} == presence.wanted(kept, FunctionState(idle(0, 0)))
    assert {"a": 1} == presence.wanted(kept, FunctionState(idle(0, 61)))
    assert 2 == presence.asleep


def test_an_unwanted_instance_rests_until_it_was_idle_for_too_long() -> None:
    """A class that the plan does not have any more stays for the keep-alive."""
    there = {"a": ClassInstances((0.0,)), "old": ClassInstances((10.0, 70.0))}
    assert {"a": 1, "old": 1} == DesiredReplicas().wanted(
        plan(1, keep_alive_s=60), FunctionState(there)
    )


def test_who_waits_wakes_as_many_as_it_takes() -> None:
    """Beside those that load; none is started while one is free."""
    presence, kept = DesiredReplicas(), plan(3, keep_alive_s=60)
    presence.wanted(kept, FunctionState(idle(61, 61, 61)))
    assert {"a": 0} == presence.wanted(kept, FunctionState(idle()))
    assert {"a": 2} == presence.wanted(kept, FunctionState(idle(), queued=5, starving=True))
    loading = FunctionState(idle(loading=2), queued=5, starving=True)
    assert {"a": 2} == presence.wanted(kept, loading)
    assert {"a": 2} == presence.wanted(kept, FunctionState(idle(0.0, 5.0), queued=9))
    assert {"a": 3} == presence.wanted(kept, FunctionState(idle(0.0, 0.0), queued=3))


def test_who_waits_for_an_instance_that_was_released_gets_one() -> None:
    """However early before its time: a request does not wait for the prewarming."""
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
def test_the_last_instance_is_there_within_its_windows(
    windows: Windows, idle_s: float | None, expected: int
) -> None:
    """A plan of none has one within the windows of the prewarm policy, and none outside."""
    state = FunctionState(idle(), idle_s=idle_s, load_s=2)
    assert expected == sum(DesiredReplicas().wanted(plan(0, windows=windows), state).values())


def test_windows_end_what_a_plan_still_holds() -> None:
    """A function that has been idle for longer has none, though its plan has not come down yet."""
    state = FunctionState(idle(90, 90), idle_s=90)
    assert {"a": 0} == DesiredReplicas().wanted(plan(2, windows=Windows(0, 60)), state)


def test_windows_are_no_keep_alive_of_each_instance() -> None:
    """While the function is busy all that is planned stays, and nothing that is not."""
    presence, timed = DesiredReplicas(), plan(2, windows=Windows(0, 60))
    assert {"a": 2} == presence.wanted(timed, FunctionState(idle(0, 99, 5)))
    assert 0 == presence.asleep


def test_one_is_enough_for_who_waits_where_there_is_none() -> None:
    """A plan of no instances gets one as soon as a request waits."""
    assert {"a": 1} == DesiredReplicas().wanted(plan(0), FunctionState(queued=3, starving=True))


def test_bounds_hold_in_any_case() -> None:
    """At least as many as the user says stay awake."""
    state = FunctionState(idle(99, 99, 99), idle_s=99, least=2)
    assert {"a": 2} == DesiredReplicas().wanted(plan(3, keep_alive_s=60), state)
