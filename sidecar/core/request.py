"""A request as the core sees it, and the states that it goes through.

Theory of operation
-------------------
A request is NEW until the batcher admits it. It is then QUEUED among requests of the same compat
key. When a batch closes, its members become BATCHED, and IN_FLIGHT when an instance takes the
batch. A batch that failed as a whole may be divided to find the offender, or sent to another
instance; its members then go back to BATCHED. Every request ends in exactly one terminal state:

    DONE       answered by the function
    FAILED     the function failed on it, alone or because nothing was left to divide
    EXPIRED    its deadline passed before an instance took it, between two attempts, or in an
               instance that answers no probes
    REFUSED    never admitted: queue full, its deadline passed on arrival, predicted to be late
    CANCELLED  the caller left

Rules: a state changes only through `advance`; a terminal state never changes, and a request in
one is left alone. An expired request is never sent to an instance.

The payload belongs to the runtime, and is opaque here.
"""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, Any

from sidecar.core.dispatch import ANYWHERE

if TYPE_CHECKING:
    from collections.abc import Hashable

    from carpool.variants.demand import VariantDemand
    from sidecar.core.dispatch import Route

__all__ = ["DEADLINE_SHARE", "TERMINAL", "TRANSITIONS", "IllegalTransition", "Request", "State"]
__all__ += ["advance"]


class State(enum.Enum):
    """The state of a request."""

    NEW = "new"
    QUEUED = "queued"
    BATCHED = "batched"
    IN_FLIGHT = "in flight"
    DONE = "done"
    FAILED = "failed"
    EXPIRED = "expired"
    REFUSED = "refused"
    CANCELLED = "cancelled"

    # Members are unique; hashing them by name, as enum does, costs a tenth of a request's time.
    __hash__ = object.__hash__


_S = State
_NEW = State.NEW  # until Python 3.12, reading a member takes as long as ten other attributes

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

DEADLINE_SHARE = 15 / 16  # of a request's time; the rest is for sending the response
TERMINAL = frozenset(state for state, successors in TRANSITIONS.items() if not successors)


class IllegalTransition(AssertionError):
    """Raised when the core tries a state transition that the table does not allow."""


class Request:
    """A request, from its arrival to its response.

    Attributes:
        id: unique within the sidecar, increasing in order of arrival.
        key: compat key; only requests of equal keys share a batch.
        arrived: when it was complete, monotonic seconds.
        deadline: when it has to be executed, same axis; ``inf`` if it has no deadline.
        due: when its response is late: the deadline plus the time to send the response;
            `extend_deadline` does not change it.
        item_count: items that it carries, each of which the model counts as one.
        size_bytes: its size in a message to an instance.
        background: whether it gets only the places that others leave
            (`sidecar.core.background_share`).
        app: name of the application it belongs to, ``*`` if none was named; any name if the
            function has no applications.
        counted_as: name under which the scaler counts it, which callers cannot make up: an
            application of the settings, a rounded demand, or ``*``.
        payload: data that the runtime needs to send and answer it.
        depart: latest departure time, set by the policy on admission.
        predicted_finish: when it is answered, as predicted on admission; 0 without a prediction.
        demand: requirements on the model variant, if they decide which is chosen; else None.
        route: the instances that may take it, set on admission.
        state: changed only by `advance`.
    """

    __slots__ = (
        "app",
        "arrived",
        "background",
        "counted_as",
        "deadline",
        "demand",
        "depart",
        "due",
        "id",
        "item_count",
        "key",
        "payload",
        "predicted_finish",
        "route",
        "size_bytes",
        "state",
    )

    def __init__(  # noqa: PLR0913 - a request has this many properties
        self,
        id: int,  # noqa: A002 - it is the request's id
        key: Hashable,
        arrived: float,
        *,
        deadline: float = math.inf,
        item_count: int = 1,
        size_bytes: int = 0,
        background: bool = False,
        app: str = "*",
        payload: Any = None,  # noqa: ANN401 - opaque by contract
    ) -> None:
        self.id = id
        self.key = key
        self.arrived = arrived
        self.deadline = self.due = deadline
        self.item_count = item_count
        self.size_bytes = size_bytes
        self.background = background
        self.app = app
        self.counted_as = "*"
        self.payload = payload
        self.depart = arrived
        self.predicted_finish = 0.0
        self.demand: VariantDemand | None = None
        self.route: Route = ANYWHERE
        self.state = _NEW

    def extend_deadline(self, until: float) -> None:
        """Extend the deadline to ``until``, late or not, as it waits for an instance to start."""
        self.deadline = max(self.deadline, until)

    def __repr__(self) -> str:
        return f"Request({self.id}, {self.state.value}, arrived={self.arrived:.6f})"


def advance(request: Request, state: State) -> None:
    """Move ``request`` to ``state``.

    Raises:
        IllegalTransition: the table does not have this transition.
    """
    if state not in TRANSITIONS[request.state]:
        msg = f"request {request.id}: {request.state.value} -> {state.value}"
        raise IllegalTransition(msg)
    request.state = state
