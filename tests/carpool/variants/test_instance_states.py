"""The states of an instance, which change only on repeated evidence."""

from __future__ import annotations

import pytest

from carpool.variants.instance_states import InstanceState, State, Thresholds, mitigation

CALM = (10.0, 0.1)  # of 100 requests a second, as the profile says
FULL = (99.0, 0.1)
SLOW = (10.0, 0.2)


def loaded() -> InstanceState:
    """Return an instance that serves 100 requests per second in 0.1 s each."""
    instance = InstanceState(100.0, 0.1)
    instance.loaded()
    return instance


def test_instance_is_inactive_until_loaded() -> None:
    """An instance is inactive until it has loaded, whatever is measured."""
    instance = InstanceState(100.0, 0.1)
    said = [instance.observe(*FULL)]
    instance.loaded()
    said.append(instance.observe(*CALM))
    assert [State.INACTIVE, State.ACTIVE] == said


@pytest.mark.parametrize(
    ("measured", "state"), [(FULL, State.OVERLOADED), (SLOW, State.INTERFERED)]
)
def test_state_changes_after_two_observations(measured: tuple[float, float], state: State) -> None:
    """A single outlier changes nothing, but two in a row do, as do two calm observations."""
    instance = loaded()
    said = [instance.observe(*each) for each in (measured, CALM, measured, measured, CALM, CALM)]
    assert [State.ACTIVE] * 3 + [state] * 2 + [State.ACTIVE] == said


def test_state_is_kept_between_enter_and_leave_thresholds() -> None:
    """Between the two thresholds, an instance keeps its state."""
    active, overloaded, interfered = loaded(), loaded(), loaded()
    for _ in range(2):
        overloaded.observe(*FULL)
        interfered.observe(*SLOW)
    for _ in range(9):
        active.observe(90.0, 0.14)
        overloaded.observe(90.0, 0.1)
        interfered.observe(10.0, 0.14)
    expected = [State.ACTIVE, State.OVERLOADED, State.INTERFERED]
    assert expected == [each.state for each in (active, overloaded, interfered)]


def test_slow_instance_at_saturation_is_overloaded() -> None:
    """Latency above the profile is interference only if the instance is not overloaded."""
    instance = loaded()
    said = [instance.observe(99.0, 0.5) for _ in range(3)]
    assert State.OVERLOADED is said[-1]


def test_backlog_is_not_interference() -> None:
    """An overloaded instance that is slow while it catches up does not count as Interfered."""
    instance = loaded()
    for _ in range(2):
        instance.observe(*FULL)
    said = {instance.observe(50.0, 0.5) for _ in range(4)}
    assert {State.OVERLOADED} == said


def test_interfered_instance_becomes_active_after_a_while() -> None:
    """An Interfered instance, which gets no requests, becomes Active again after a while."""
    instance = loaded()
    for _ in range(2):
        instance.observe(*SLOW)
    for _ in range(9):
        assert State.INTERFERED is instance.observe(0.0, None)
    assert State.ACTIVE is instance.observe(0.0, None)


def test_leave_threshold_above_enter_threshold_is_refused() -> None:
    """The threshold for leaving a state cannot be above that for entering it."""
    with pytest.raises(ValueError, match="relieved <= overloaded"):
        Thresholds(overloaded=0.5, relieved=0.9)


def test_interference_moves_load_or_requests_placement() -> None:
    """The load moves to an Active instance if there is one; otherwise a placement is requested."""
    slow, busy, fine = State.INTERFERED, State.OVERLOADED, State.ACTIVE
    assert {"a": "move"} == mitigation({"a": slow, "b": fine, "c": busy})
    assert {"a": "place"} == mitigation({"a": slow, "b": busy})
    assert {} == mitigation({"b": busy})
