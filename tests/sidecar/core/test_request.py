"""The state table."""

from __future__ import annotations

import pytest

from sidecar.core.request import TERMINAL, TRANSITIONS, IllegalTransition, Request, State, advance


def test_every_state_has_a_row() -> None:
    """The table is total: no state is forgotten."""
    assert set(TRANSITIONS) == set(State)


def test_the_terminal_states_are_the_five_fates() -> None:
    """A request ends done, failed, expired, refused or cancelled, and in no other way."""
    fates = {State.DONE, State.FAILED, State.EXPIRED, State.REFUSED, State.CANCELLED}
    assert fates == TERMINAL


def test_every_state_reaches_an_end() -> None:
    """From wherever a request is, some arrows lead to a terminal state."""
    ending = set(TERMINAL)
    for _ in State:
        ending |= {state for state, after in TRANSITIONS.items() if after & ending}
    assert set(State) == ending


@pytest.mark.parametrize("state", sorted(TERMINAL, key=str))
def test_a_terminal_state_never_changes(state: State) -> None:
    """A fate is final."""
    request = Request(1, "k", 0.0)
    request.state = state
    for other in State:
        with pytest.raises(IllegalTransition):
            advance(request, other)


def test_an_expired_request_cannot_be_sent() -> None:
    """There is no arrow from EXPIRED to IN_FLIGHT, nor past BATCHED."""
    assert State.IN_FLIGHT not in TRANSITIONS[State.EXPIRED]
    assert State.IN_FLIGHT not in TRANSITIONS[State.QUEUED]
