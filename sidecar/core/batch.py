"""A batch, the reasons why it closed or failed, and the actions that a batcher step requests."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sidecar.core.dispatch import Upstream
    from sidecar.core.request import Request

__all__ = ["Actions", "Batch", "CloseReason", "Fault", "GivenUp", "Refusal", "SplitBatch"]

_HANGS_MAX = 2  # hangs in one divided batch; each occupies an instance for a whole exec_timeout


class CloseReason(enum.Enum):
    """Why a batch closed."""

    FULL = "full"  # it has the size that the policy wanted
    IDLE = "idle"  # an instance was free, and the policy does not wait
    DEPARTURE = "departure"  # the wait of a member was over
    DRAIN = "drain"  # the sidecar is about to stop
    ISOLATION = "isolation"  # it is part of a batch that failed


class Refusal(enum.Enum):
    """Why a request was not admitted."""

    QUEUE_FULL = "queue_full"
    EXPIRED = "expired"
    LATE = "late"


class Fault(enum.Enum):
    """How a batch failed as a whole."""

    ANSWERED = "error"  # an error or a malformed answer; the instance is alive
    DIED = "died"  # the instance went away while it had the batch
    UNSENT = "unsent"  # the batch never reached the instance
    HUNG = "hung"  # no answer within exec_timeout


@dataclass(slots=True)
class SplitBatch:
    """A batch that failed and was divided, and the outcomes of its requests.

    Attributes:
        size: number of requests in it.
        failed: number of them that failed alone.
        hung: number of those that failed by hanging.
        answered: number of them answered successfully since, if that is counted.
    """

    size: int
    failed: int = 0
    hung: int = 0
    answered: int = 0

    @property
    def abandoned(self) -> bool:
        """Whether so many requests have hung that the remaining ones are not tried."""
        return self.hung >= _HANGS_MAX


@dataclass(slots=True, eq=False)
class Batch:
    """Requests that are sent to an instance together.

    Attributes:
        id: unique within the sidecar.
        requests: the members, in the order in which they left the queue.
        item_count: items of all members.
        upstream: the instance that takes it.
        instance_class: the class that the instance had when the batch was sent.
        plan: version of the plan under which it was sent; None without a plan.
        close_reason: why it closed.
        sent: when it was sent.
        starts: when the instance was expected to start executing it.
        expected_s: expected execution time; 0 while nothing is known.
        attempt: how often its members have been sent together, from 1.
        split_from: the failed batch that it is a part of, if any.
        deaths: instances that died earlier while they held only its single member.
        blameless: whether the instance died or hung because of another batch that it held.
        exec_s: time from when the instance could start it to its response.
    """

    id: int
    requests: list[Request]
    item_count: int
    upstream: Upstream
    close_reason: CloseReason
    sent: float
    starts: float
    expected_s: float
    instance_class: str = ""
    plan: int | None = None
    attempt: int = 1
    split_from: SplitBatch | None = None
    deaths: int = 0
    blameless: bool = False
    exec_s: float = 0.0


class GivenUp(NamedTuple):
    """Requests given up: ``unsent`` were never with an instance, ``retried`` were."""

    unsent: list[Request]
    retried: list[Request]


class Actions(NamedTuple):
    """The actions that the event loop must take after a step."""

    send: list[Batch]
    expired: list[Request]
