"""Finding the one bad request in a batch that failed as a whole, and keeping it apart later.

Theory of operation
-------------------
A batch that was answered with a failure is divided into halves, each sent again on its own, until
the offender is alone: about ``2 log2(n)`` further batches, and every neighbour is answered. A batch
whose instance died is taken apart into single requests at once, because every further death costs
a restart, which is dearer than some short batches. A batch that never reached its instance is sent
again whole: none of its requests is suspect.

Instances are also killed for reasons of their own (memory, operators, a node that goes), and a
death does not tell which. So a request is blamed only for the fourth death of an instance that had
nothing else to do: where one batch in fifty is hit by such a kill, which is a machine in trouble,
that wrongs one request in six million that was sent alone; blaming it for the second death would
wrong one in 2500. An offender costs five restarts at most, the batch's included, and one whenever
it comes again while it is remembered.

A batch that hung is taken apart at once, too: its instance has to be restarted, and every further
one that hangs costs as long again. So a request that hung alone is not tried once more, and after
two of one batch the function is taken to hang by itself: the others of that batch fail, and for a
while batches that hang are not divided. Of the members only those are sent again whose deadlines
have not passed, which after a whole ``exec_timeout`` are few unless they have none.

An offender that was found alone is remembered by its fingerprint and is sent alone for a while, so
that sending it again harms no other request. Where most members fail alone, with no answer between
them, the function is broken rather than its input; dividing would then double the load for
nothing, and is suspended.

This file decides; the batcher moves the requests.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from sidecar.core.batch import Fault, Lineage
from sidecar.core.retry_queue import Part

if TYPE_CHECKING:
    from collections.abc import Hashable

    from sidecar.core.batch import Batch
    from sidecar.core.request import Request

__all__ = ["Isolation"]

QUARANTINE_S = 60.0
_QUARANTINED_MAX = 1024
_SUSPEND_S = 5.0
_OFFENDERS_MIN = 8  # in a row; some that met in a small batch say nothing of the function
_DEATHS_MAX = 4  # of instances that had one request and nothing else, until it is blamed
_UNSENT_MAX = 5  # attempts of a batch that never reached an instance


class Isolation:
    """Divides failed batches and keeps known offenders apart."""

    def __init__(self) -> None:
        self._until: OrderedDict[Hashable, float] = OrderedDict()  # soonest forgotten first
        self._suspended_until = 0.0
        self._in_a_row = 0  # offenders found since the last answer

    def divide(
        self, batch: Batch, members: list[Request], fault: Fault, now: float, *, known: bool
    ) -> list[Part]:
        """What to send in place of a batch that failed; nothing: its members fail.

        Args:
            batch: as it was sent. If others were in it, a member is not the offender yet, even
                if it is the last that still waits.
            members: the members that still wait, in order.
            fault: how it failed.
            now: seconds, monotonic.
            known: the batch is one request alone, which is remembered.
        """
        again = Part(members, batch.attempt + 1, batch.lineage, batch.deaths)
        if fault is Fault.UNSENT:
            return [again] if batch.attempt - batch.deaths < _UNSENT_MAX else []
        if len(batch.requests) == 1:
            deaths = batch.deaths + 1
            spared = fault is Fault.DIED and deaths < _DEATHS_MAX and not known
            return [again._replace(deaths=deaths)] if spared else []
        if now < self._suspended_until and batch.lineage is None:
            return []
        lineage = batch.lineage or Lineage(len(batch.requests))
        if fault is not Fault.ANSWERED or len(members) == 1:
            return [Part([request], 1, lineage) for request in members]
        middle = len(members) // 2
        return [Part(half, 1, lineage) for half in (members[:middle], members[middle:])]

    def answered(self) -> None:
        """The function answered a batch: it is not broken."""
        self._in_a_row = 0

    def failed_alone(
        self, fingerprint: Hashable, lineage: Lineage | None, fault: Fault, now: float
    ) -> None:
        """An offender is found: keep its like apart for a while.

        Where most of a divided batch are offenders, the next batches are not divided for a while.
        """
        self._until[fingerprint] = now + QUARANTINE_S
        self._until.move_to_end(fingerprint)
        if len(self._until) > _QUARANTINED_MAX:
            self._until.popitem(last=False)
        if lineage:
            lineage.failed += 1
            lineage.hung += fault is Fault.HUNG
            self._in_a_row += 1
            if self._in_a_row >= _OFFENDERS_MIN and 2 * lineage.failed > lineage.size:
                self._suspended_until = now + _SUSPEND_S
            if lineage.hopeless:
                self._suspended_until = now + QUARANTINE_S

    def suspicious(self, now: float) -> bool:
        """Whether any offender is remembered; otherwise no body need be looked at."""
        while self._until and next(iter(self._until.values())) <= now:
            self._until.popitem(last=False)
        return bool(self._until)

    def apart(self, fingerprint: Hashable) -> bool:
        """Whether a request with this fingerprint must be sent alone."""
        return fingerprint in self._until
