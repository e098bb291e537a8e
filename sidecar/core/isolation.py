"""Finding the one bad request in a batch that failed as a whole, and keeping it apart later.

Theory of operation
-------------------
A batch that was answered with a failure is divided into halves, each sent again on its own, until
the offender is alone: about ``2 log2(n)`` further batches, and every neighbour is answered. A batch
whose instance died is taken apart into single requests at once, because every further death costs
a restart, which is dearer than some short batches. A batch that never reached its instance is
sent again whole: nobody in it is suspect.

An offender that was found alone is remembered by its fingerprint and rides alone for a while, so
that sending it again harms nobody. Where most members turn out to fail alone, the function is
broken rather than its input; dividing would then double the load for nothing, and is suspended.

This file decides; the batcher moves the requests.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from sidecar.core.request import Request

__all__ = ["Fault", "Isolation", "Lineage"]

QUARANTINE_S = 60.0
_QUARANTINED_MAX = 1024
_SUSPEND_S = 5.0
_ATTEMPTS_MAX = 3  # of a batch that never reached an instance


class Fault(enum.Enum):
    """How a batch failed as a whole."""

    ANSWERED = "answered"  # an error, or something that is no answer: the instance lives
    DIED = "died"  # the instance went away while it had the batch
    UNSENT = "unsent"  # the batch never reached the instance
    HUNG = "hung"  # no answer in time: dividing would wait as long again, and suspect everybody


@dataclass(slots=True)
class Lineage:
    """What became of one batch that was divided.

    Attributes:
        size: requests in it.
        settled: how many of them have come to an end.
        failed: how many of these failed alone.
    """

    size: int
    settled: int = 0
    failed: int = 0


class Isolation:
    """Divides failed batches and keeps known offenders apart."""

    def __init__(self) -> None:
        self._until: OrderedDict[Hashable, float] = OrderedDict()
        self._suspended_until = 0.0

    def divide(
        self, requests: list[Request], fault: Fault, attempt: int, now: float
    ) -> list[list[Request]]:
        """The batches to send in place of the one that failed; none: its members fail.

        Args:
            requests: the members that still wait, in order.
            fault: how their batch failed.
            attempt: how often it has been sent, at least 1.
            now: seconds, monotonic.
        """
        if fault is Fault.UNSENT:
            return [requests] if attempt < _ATTEMPTS_MAX else []
        if fault is Fault.HUNG or len(requests) < 2 or now < self._suspended_until:  # noqa: PLR2004 - two can be divided
            return []
        if fault is Fault.DIED:
            return [[request] for request in requests]
        middle = len(requests) // 2
        return [requests[:middle], requests[middle:]]

    def settled(self, lineage: Lineage, *, failed: bool, now: float) -> None:
        """One member of a divided batch has come to its end."""
        lineage.settled += 1
        lineage.failed += failed
        if lineage.settled == lineage.size and 2 * lineage.failed > lineage.size:
            self._suspended_until = now + _SUSPEND_S

    def blame(self, requests: list[Request], fault: Fault) -> bool:
        """Whether a batch of ``requests`` that failed for good names its offender."""
        return len(requests) == 1 and fault in (Fault.ANSWERED, Fault.DIED)

    def convict(self, fingerprint: Hashable, now: float) -> None:
        """A request with this fingerprint failed alone: keep its like apart for a while."""
        self._until[fingerprint] = now + QUARANTINE_S
        self._until.move_to_end(fingerprint)
        if len(self._until) > _QUARANTINED_MAX:
            self._until.popitem(last=False)

    @property
    def suspicious(self) -> bool:
        """Whether anybody is remembered at all."""
        return bool(self._until)

    def apart(self, fingerprint: Hashable, now: float) -> bool:
        """Whether a request with this fingerprint must ride alone."""
        until = self._until.get(fingerprint)
        if until is None:
            return False
        if until <= now:
            del self._until[fingerprint]
            return False
        return True
