"""A request on its way through a model's nodes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from carpool.lazy_batching.program import RemainingRuns

if TYPE_CHECKING:
    from collections.abc import Hashable

    from carpool.lazy_batching.program import Program

__all__ = ["Job"]


class Job:
    """One request.

    Attributes:
        id: Unique, increasing in order of arrival.
        program: Model of the request.
        arrived: Time of arrival in seconds, on the axis of ``now``.
        deadline: Latest time of the response, same axis; ``inf`` if there is none.
        left: How often it will run through its model's loops. The decoder's part is a prediction.
        key: Requests of one model are batched if their keys are equal, such as those of equal
            shapes.
        rows: Rows that it adds to a batch.
        payload: Data of the caller.
    """

    __slots__ = ("arrived", "deadline", "id", "key", "left", "payload", "program", "rows")

    def __init__(  # noqa: PLR0913 - a request has this many properties
        self,
        id: int,  # noqa: A002 - it is the request's id
        program: Program,
        arrived: float,
        *,
        deadline: float = math.inf,
        left: RemainingRuns | None = None,
        key: Hashable = None,
        rows: int = 1,
        payload: Any = None,  # noqa: ANN401 - opaque by contract
    ) -> None:
        self.id = id
        self.program = program
        self.arrived = arrived
        self.deadline = deadline
        self.left = left or RemainingRuns()
        self.key = key
        self.rows = rows
        self.payload = payload

    def __repr__(self) -> str:
        return f"Job({self.id}, {self.program.name!r}, arrived={self.arrived:.6f})"
