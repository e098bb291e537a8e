"""The states of an instance: entered and left on evidence, not on noise."""

from __future__ import annotations

import pytest

from carpool.variants.instance_states import InstanceState, State, Thresholds, mitigation

CALM = (10.0, 0.1)  # of 100 requests a second, as the profile says
FULL = (99.0, 0.1)
SLOW = (10.0, 0.2)


def loaded() -> InstanceState:
    """An instance that takes 100 requests a second, in 0.1 s."""
    instance = InstanceState(100.0, 0.1)
    instance.loaded()
    return instance


def test_it_is_inactive_until_it_has_loaded() -> None:
    """Nothing that is measured makes an instance that is not there a busy one."""
    instance = InstanceState(100.0, 0.1)
    said = [instance.observe(*FULL)]
    instance.loaded()
    said.append(instance.observe(*CALM))
    instance.unloaded()
    assert [State.INACTIVE, State.ACTIVE, State.INACTIVE] == [*said, instance.state]


@pytest.mark.parametrize(
    ("measured", "state"), [(FULL, State.OVERLOADED), (SLOW, State.INTERFERED)]
)
def test_it_takes_two_observations_to_change(measured: tuple[float, float], state: State) -> None:
    """One outlier changes nothing; two in a row do, and two calm ones change it back."""
    instance = loaded()
    said = [instance.observe(*each) for each in (measured, CALM, measured, measured, CALM, CALM)]
    assert [State.ACTIVE] * 3 + [state] * 2 + [State.ACTIVE] == said


def test_a_state_is_left_at_another_threshold_than_it_is_entered() -> None:
    """Between the two thresholds an instance stays what it is."""
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


def test_slow_at_saturation_is_overloaded() -> None:
    """Latency above the profile is interference only if the instance is not overloaded."""
    instance = loaded()
    said = [instance.observe(99.0, 0.5) for _ in range(3)]
    assert State.OVERLOADED is said[-1]


def test_a_backlog_is_no_interference() -> None:
    """What was overloaded and is slow until it has caught up does not count as interfered."""
    instance = loaded()
    for _ in range(2):
        instance.observe(*FULL)
    said = {instance.observe(50.0, 0.5) for _ in range(4)}
    assert {State.OVERLOADED} == said


def test_an_instance_that_gets_nothing_is_tried_again() -> None:
    """An interfered instance is not selected, so after a rest it becomes Active."""
    instance = loaded()
    for _ in range(2):
        instance.observe(*SLOW)
    for _ in range(9):
        assert State.INTERFERED is instance.observe(0.0, None)
    assert State.ACTIVE is instance.observe(0.0, None)


def test_thresholds_that_no_state_could_rest_between_are_refused() -> None:
    """A state cannot be left above where it is entered."""
    with pytest.raises(ValueError, match="relieved <= overloaded"):
        Thresholds(overloaded=0.5, relieved=0.9)


def test_interference_is_met_by_moving_or_else_by_asking_for_a_place() -> None:
    """The load goes to an Active instance if there is one; if not, one is asked for."""
    slow, busy, fine = State.INTERFERED, State.OVERLOADED, State.ACTIVE
    assert {"a": "move"} == mitigation({"a": slow, "b": fine, "c": busy})
    assert {"a": "place"} == mitigation({"a": slow, "b": busy})
    assert {} == mitigation({"b": busy})
