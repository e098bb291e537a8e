"""The states of an instance, which change only on repeated evidence."""

from __future__ import annotations

import pytest

from carpool.variants.instance_states import InstanceState, State

CALM = (0.1, 1.0)  # of its saturation rate, as quick as its profile
FULL = (0.99, 1.0)
SLOW = (0.1, 2.0)


@pytest.mark.parametrize(
    ("measured", "state"), [(FULL, State.OVERLOADED), (SLOW, State.INTERFERED)]
)
def test_state_changes_after_two_observations(measured: tuple[float, float], state: State) -> None:
    """A single outlier changes nothing, but two in a row do, as do two calm observations."""
    instance = InstanceState()
    said = [instance.observe(*each) for each in (measured, CALM, measured, measured, CALM, CALM)]
    assert [State.ACTIVE] * 3 + [state] * 2 + [State.ACTIVE] == said


def test_state_is_kept_between_enter_and_leave_thresholds() -> None:
    """Between the two thresholds, an instance keeps its state."""
    active, overloaded, interfered = InstanceState(), InstanceState(), InstanceState()
    for _ in range(2):
        overloaded.observe(*FULL)
        interfered.observe(*SLOW)
    for _ in range(9):
        active.observe(0.9, 1.4)
        overloaded.observe(0.9, 1.0)
        interfered.observe(0.1, 1.4)
    expected = [State.ACTIVE, State.OVERLOADED, State.INTERFERED]
    assert expected == [each.state for each in (active, overloaded, interfered)]


def test_slow_instance_at_saturation_is_overloaded() -> None:
    """Latency above the profile is interference only if the instance is not overloaded."""
    instance = InstanceState()
    said = [instance.observe(0.99, 5.0) for _ in range(3)]
    assert State.OVERLOADED is said[-1]


def test_backlog_is_not_interference() -> None:
    """An overloaded instance that is slow while it catches up does not count as Interfered."""
    instance = InstanceState()
    for _ in range(2):
        instance.observe(*FULL)
    said = {instance.observe(0.5, 5.0) for _ in range(4)}
    assert {State.OVERLOADED} == said


def test_interfered_instance_becomes_active_after_a_while() -> None:
    """An Interfered instance, which gets no requests, becomes Active again after a while."""
    instance = InstanceState()
    for _ in range(2):
        instance.observe(*SLOW)
    for _ in range(9):
        assert State.INTERFERED is instance.observe(0.0, None)
    assert State.ACTIVE is instance.observe(0.0, None)
