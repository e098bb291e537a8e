"""The life of a request, as a table.

Theory of operation
-------------------
A request is NEW until the batcher admits it. Admitted, it is QUEUED among requests of the same
compat key. When a batch closes, its members become BATCHED, and IN_FLIGHT when an instance takes
the batch. A batch that failed as a whole may be divided to find the offender, or sent to another
instance; its members then go back to BATCHED. Everything ends in exactly one terminal state:

    DONE       answered by the function
    FAILED     the function failed on it, alone or because nothing was left to divide
    EXPIRED    its deadline passed before an instance took it, between two attempts, or in an
               instance that gives no sign of life
    REFUSED    never admitted: queue full, draining, predicted to be late
    CANCELLED  the caller left

Rules: a state changes through `advance` alone; a terminal state never changes, and a request in
one is left alone. An expired request is never sent to an instance.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sidecar.core.request import Request

__all__ = ["TERMINAL", "TRANSITIONS", "IllegalTransition", "State", "advance"]


class State(enum.Enum):
    """Where a request is in its life."""

    NEW = "new"
    QUEUED = "queued"
    BATCHED = "batched"
    IN_FLIGHT = "in flight"
    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"
    REFUSED = "refused"
    CANCELLED = "cancelled"

    # Members are unique objects; hashing them by name, as enum does, costs a tenth of a request.
    __hash__ = object.__hash__


_S = State

TRANSITIONS: dict[State, frozenset[State]] = {
    _S.NEW: frozenset({_S.QUEUED, _S.REFUSED}),
    _S.QUEUED: frozenset({_S.BATCHED, _S.EXPIRED, _S.CANCELLED, _S.FAILED}),
    _S.BATCHED: frozenset({_S.IN_FLIGHT, _S.EXPIRED, _S.CANCELLED, _S.FAILED}),
    _S.IN_FLIGHT: frozenset({_S.DONE, _S.FAILED, _S.BATCHED, _S.EXPIRED, _S.CANCELLED}),
    _S.DONE: frozenset(),
    _S.FAILED: frozenset(),
    _S.EXPIRED: frozenset(),
    _S.REFUSED: frozenset(),
    _S.CANCELLED: frozenset(),
}

TERMINAL = frozenset(state for state, successors in TRANSITIONS.items() if not successors)


class IllegalTransition(AssertionError):
    """The core tried to move a request where the table does not allow it."""


def advance(request: Request, state: State) -> None:
    """Move ``request`` to ``state``.

    Raises:
        IllegalTransition: the table has no such arrow.
    """
    if state not in TRANSITIONS[request.state]:
        msg = f"request {request.id}: {request.state.value} -> {state.value}"
        raise IllegalTransition(msg)
    request.state = state
