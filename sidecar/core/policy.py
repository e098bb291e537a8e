"""The contract of a batch policy: when a request must leave, and how many leave together.

A batch leaves when an instance can take it and it is full, or the departure time of a member has
come, or the sidecar drains. A policy chooses departure times and sizes only; the batcher
keeps the queue, the clock and the guarantees (limits, compat keys, deadlines) in any case.

A policy is a class with a frozen dataclass ``Params``, constructed with an object of it, and the
three methods of `BatchPolicy`. Policies are deterministic: same calls, same results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.core.exec_time import ExecTime
    from sidecar.core.request import Request

__all__ = ["BatchPolicy", "Decision", "Executed", "Waiting"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a policy sees when an instance could take a batch.

    Attributes:
        now: when the instance can start the batch; seconds, monotonic.
        count: items of the waiting requests of one compat key, at least 1. Most requests have
            one item.
        limit: largest batch that the instance and the settings allow, in items, at least 1.
        exec_time: model of the execution time by batch size.
        first: ``first(n)`` returns the next requests with at most n items together, in order; at
            least one, however many items it has.
    """

    now: float
    count: int
    limit: int
    exec_time: ExecTime
    first: Callable[[int], list[Request]]


class Decision(NamedTuple):
    """Number of items that leave together, and of requests given up first.

    Attributes:
        size: items that should leave together, 1 to the limit. If fewer wait, and none is
            due, the batcher waits for more.
        late: number of the next requests to give up first, because they would be answered too
            late and their places save others. Requests without a deadline are not counted and stay.
    """

    size: int
    late: int = 0


@dataclass(frozen=True, slots=True)
class Executed:
    """One batch that was executed without an error.

    Attributes:
        size: items in it.
        exec_s: seconds from when the instance was free for it to its response.
        now: when the response came.
    """

    size: int
    exec_s: float
    now: float


class BatchPolicy(Protocol):
    """Decides when batches leave and how large they are."""

    def depart(self, request: Request) -> float:
        """Return the latest time at which ``request`` should leave; called once, on admission.

        A time not later than the request's arrival means: as soon as an instance is free.
        """

    def decide(self, waiting: Waiting) -> Decision:
        """Return how many items should leave together now."""

    def observe(self, executed: Executed) -> None:
        """Learn from a batch that was executed."""
