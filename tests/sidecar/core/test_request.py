"""The state table of a request."""

from __future__ import annotations

import pytest

from sidecar.core.request import TERMINAL, TRANSITIONS, IllegalTransition, Request, State, advance


def test_transition_table_has_row_for_every_state() -> None:
    """The table has a row for every state."""
    assert set(TRANSITIONS) == set(State)


def test_terminal_states_are_the_five_outcomes() -> None:
    """The terminal states are done, failed, expired, refused and cancelled."""
    outcomes = {State.DONE, State.FAILED, State.EXPIRED, State.REFUSED, State.CANCELLED}
    assert outcomes == TERMINAL


def test_every_state_reaches_terminal_state() -> None:
    """From every state, some transitions lead to a terminal state."""
    ending = set(TERMINAL)
    for _ in State:
        ending |= {state for state, after in TRANSITIONS.items() if after & ending}
    assert set(State) == ending


@pytest.mark.parametrize("state", sorted(TERMINAL, key=str))
def test_a_terminal_state_never_changes(state: State) -> None:
    """A terminal state allows no transition."""
    request = Request(1, "k", 0.0)
    request.state = state
    for other in State:
        with pytest.raises(IllegalTransition):
            advance(request, other)


def test_an_expired_request_cannot_be_sent() -> None:
    """Neither EXPIRED nor QUEUED leads directly to IN_FLIGHT."""
    assert State.IN_FLIGHT not in TRANSITIONS[State.EXPIRED]
    assert State.IN_FLIGHT not in TRANSITIONS[State.QUEUED]
