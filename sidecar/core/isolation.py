"""Finding the one bad request in a batch that failed as a whole, and keeping it apart later.

Theory of operation
-------------------
A batch that was answered with a failure is divided into halves, each sent again on its own, until
the offender is alone: about ``2 log2(n)`` further batches, and every neighbour is answered. A batch
whose instance died is taken apart into single requests at once, because every further death costs
a restart, which is dearer than some short batches. Who was alone when it died is tried once more,
because instances are killed for other reasons too. A batch that never reached its instance is sent
again whole: nobody in it is suspect.

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

    from sidecar.core.batch import Batch
    from sidecar.core.request import Request

__all__ = ["Fault", "Isolation", "Lineage"]

QUARANTINE_S = 60.0
_QUARANTINED_MAX = 1024
_SUSPEND_S = 5.0
_OFFENDERS_MIN = 3  # of one batch; two that met in a batch of two say nothing of the function
_ATTEMPTS_MAX = 3  # of a batch that never reached an instance


class Fault(enum.Enum):
    """How a batch failed as a whole."""

    ANSWERED = "error"  # an error, or something that is no answer: the instance lives
    DIED = "died"  # the instance went away while it had the batch
    UNSENT = "unsent"  # the batch never reached the instance
    HUNG = "hung"  # no answer in time: dividing would wait as long again, and suspect everybody


@dataclass(slots=True)
class Lineage:
    """What became of one batch that was divided.

    Attributes:
        size: requests in it.
        failed: how many of them have failed alone.
    """

    size: int
    failed: int = 0


class Isolation:
    """Divides failed batches and keeps known offenders apart."""

    def __init__(self) -> None:
        self._until: OrderedDict[Hashable, float] = OrderedDict()  # soonest forgotten first
        self._suspended_until = 0.0

    def divide(
        self, batch: Batch, riding: list[Request], fault: Fault, now: float, *, known: bool
    ) -> list[list[Request]]:
        """The batches to send in place of one that failed; none: its members fail.

        Args:
            batch: as it was sent. If others were in it, a member is not the offender yet, even
                if he is the last who still waits.
            riding: the members that still wait, in order.
            fault: how it failed.
            now: seconds, monotonic.
            known: the batch is one request alone, which is remembered.
        """
        if fault is Fault.UNSENT:
            return [riding] if batch.attempt < _ATTEMPTS_MAX else []
        if len(batch.requests) == 1:  # the instance may have been killed for another reason
            chance = fault is Fault.DIED and batch.attempt == 1 and not known
            return [riding] if chance else []
        suspended = now < self._suspended_until and batch.lineage is None
        if fault is Fault.HUNG or suspended:
            return []
        if fault is Fault.DIED or len(riding) == 1:
            return [[request] for request in riding]
        middle = len(riding) // 2
        return [riding[:middle], riding[middle:]]

    def failed_alone(self, fingerprint: Hashable, lineage: Lineage | None, now: float) -> None:
        """An offender is found: keep its like apart for a while.

        Where most of a divided batch are offenders, the next batches are not divided for a while.
        """
        self._until[fingerprint] = now + QUARANTINE_S
        self._until.move_to_end(fingerprint)
        if len(self._until) > _QUARANTINED_MAX:
            self._until.popitem(last=False)
        if lineage:
            lineage.failed += 1
            if lineage.failed >= _OFFENDERS_MIN and 2 * lineage.failed > lineage.size:
                self._suspended_until = now + _SUSPEND_S

    def suspicious(self, now: float) -> bool:
        """Whether anybody is remembered at all; nobody's body need be looked at otherwise."""
        while self._until and next(iter(self._until.values())) <= now:
            self._until.popitem(last=False)
        return bool(self._until)

    def apart(self, fingerprint: Hashable) -> bool:
        """Whether a request with this fingerprint must ride alone."""
        return fingerprint in self._until
