"""What the core knows of a request; its payload is the runtime's and stays opaque."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sidecar.core.dispatch import ANYWHERE
from sidecar.core.states import State

if TYPE_CHECKING:
    from collections.abc import Hashable

    from carpool.variants.demand import Demand
    from sidecar.core.dispatch import Route

__all__ = ["Request"]


class Request:
    """A request on its way through the sidecar.

    Attributes:
        id: unique within the sidecar, increasing in order of arrival.
        key: compat key; only requests of equal keys share a batch.
        arrived: when it was complete, monotonic seconds.
        deadline: when it must be executed to be worth anything, same axis; ``inf`` if never.
        due: when its answer is late: the deadline, unless that was put off (`hold`), or the answer
            has a way to go.
        seats: how many items it carries, each of which the model counts as one.
        size_bytes: how much of a message to an instance it takes.
        background: it gets the seats that others leave empty (`sidecar.core.balance`).
        app: name of the application it belongs to, ``*`` if none was named.
        payload: whatever the runtime needs to send and answer it.
        depart: latest departure time, set by the policy on admission.
        promised: when it was predicted, on admission, to be answered; 0 if nothing was.
        demand: what it needs, where it says so itself and its variant is chosen by that; or None.
        route: which instances may take it, set on admission.
        state: where it is in its life (`sidecar.core.states`).
    """

    __slots__ = (
        "app",
        "arrived",
        "background",
        "deadline",
        "demand",
        "depart",
        "due",
        "id",
        "key",
        "payload",
        "promised",
        "route",
        "seats",
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
        seats: int = 1,
        size_bytes: int = 0,
        background: bool = False,
        app: str = "*",
        payload: Any = None,  # noqa: ANN401 - opaque by contract
    ) -> None:
        self.id = id
        self.key = key
        self.arrived = arrived
        self.deadline = self.due = deadline
        self.seats = seats
        self.size_bytes = size_bytes
        self.background = background
        self.app = app
        self.payload = payload
        self.depart = arrived
        self.promised = 0.0
        self.demand: Demand | None = None
        self.route: Route = ANYWHERE
        self.state = State.NEW

    def hold(self, until: float) -> None:
        """It waits for an instance to start: it may be answered up to then, late or not."""
        self.deadline = max(self.deadline, until)

    def __repr__(self) -> str:
        return f"Request({self.id}, {self.state.value}, arrived={self.arrived:.6f})"
