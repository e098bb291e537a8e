"""Finds the one bad request in a batch that failed as a whole, and quarantines it.

Theory of operation
-------------------
A batch that was answered with a failure is divided into halves, each sent again on its own, until
the offender is alone: about ``2 log2(n)`` further batches, and every other member is answered. A
batch whose instance died is divided into single requests at once, because every further death costs
a restart, which is more expensive than some short batches. A batch that never reached its instance
is sent again whole: none of its requests is suspect.

Instances are also killed for other reasons (memory, operators, a lost node), and a death does not
tell which. So a request is blamed only for the fourth death of an instance that had nothing else to
do. If one batch in fifty is hit by such a kill, which is a machine in trouble, this wrongly blames
one in six million of the requests sent alone; blaming it for the second death would wrongly blame
one in 2500. An offender costs five restarts at most, including that of the batch, and one each time
it comes again while it is quarantined.

A batch that hung is also divided into single requests at once: its instance has to be restarted,
and every further one that hangs costs as long again. So a request that hung alone is not retried,
and after two of one batch the function is assumed to hang whatever its input: the other members of
that batch fail, and for a while batches that hang are not divided. Only members whose deadlines
have not passed are sent again; after a whole ``exec_timeout`` these are few unless they have no
deadline.

An offender that was found alone is quarantined by its fingerprint: for a while requests like it are
sent alone, so that they harm no other. If most members fail alone, with no successful response
between them, the function is broken rather than its input; dividing would then double the load for
nothing, and is suspended.

This module decides; the batcher moves the requests.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from sidecar.core.batch import Fault, SplitBatch
from sidecar.core.retry_queue import Retry

if TYPE_CHECKING:
    from collections.abc import Hashable

    from sidecar.core.batch import Batch
    from sidecar.core.request import Request

__all__ = ["BatchDivision"]

QUARANTINE_S = 60.0
_QUARANTINED_MAX = 1024
_SUSPENSION_S = 5.0
_OFFENDERS_MIN = 8  # in a row; a few in one small batch do not show that the function is broken
_DEATHS_MAX = 4  # deaths of instances with only this request; then it is considered the cause
_ATTEMPTS_MAX = 5  # for a batch that never reached an instance


class BatchDivision:
    """Divides failed batches, and quarantines the offenders found."""

    def __init__(self) -> None:
        self._quarantined_until: OrderedDict[Hashable, float] = OrderedDict()  # by time
        self._suspended_until = 0.0
        self._offenders_in_a_row = 0  # since the last answered batch

    def divide(
        self, batch: Batch, members: list[Request], fault: Fault, now: float, *, quarantined: bool
    ) -> list[Retry]:
        """Return what to send in place of a failed batch. Empty if its members fail.

        Args:
            batch: as it was sent. If others were in it, a member is not the offender yet, even
                if it is the last that still waits.
            members: the members that still wait, in order.
            fault: how it failed.
            now: seconds, monotonic.
            quarantined: whether the batch is a single request that is quarantined.
        """
        whole = Retry(members, batch.attempt + 1, batch.split_from, batch.deaths)
        if fault is Fault.UNSENT:
            return [whole] if batch.attempt - batch.deaths < _ATTEMPTS_MAX else []
        if len(batch.requests) == 1:
            deaths = batch.deaths + 1
            try_again = fault is Fault.DIED and deaths < _DEATHS_MAX and not quarantined
            return [whole._replace(deaths=deaths)] if try_again else []
        if now < self._suspended_until and batch.split_from is None:
            return []
        split_from = batch.split_from or SplitBatch(len(batch.requests))
        if fault is not Fault.ANSWERED or len(members) == 1:
            return [Retry([request], 1, split_from) for request in members]
        middle = len(members) // 2
        return [Retry(half, 1, split_from) for half in (members[:middle], members[middle:])]

    def function_answered(self) -> None:
        """Note that the function answered a batch, so it is not broken."""
        self._offenders_in_a_row = 0

    def failed_alone(
        self, fingerprint: Hashable, split_from: SplitBatch | None, fault: Fault, now: float
    ) -> None:
        """Quarantine an offender that was found.

        If most requests of a divided batch are offenders, dividing is suspended for a while.
        """
        self._quarantined_until[fingerprint] = now + QUARANTINE_S
        self._quarantined_until.move_to_end(fingerprint)
        if len(self._quarantined_until) > _QUARANTINED_MAX:
            self._quarantined_until.popitem(last=False)
        if split_from:
            split_from.failed += 1
            split_from.hung += fault is Fault.HUNG
            self._offenders_in_a_row += 1
            most_failed = 2 * split_from.failed > split_from.size
            if self._offenders_in_a_row >= _OFFENDERS_MIN and most_failed:
                self._suspended_until = now + _SUSPENSION_S
            if split_from.abandoned:
                self._suspended_until = now + QUARANTINE_S

    def any_quarantined(self, now: float) -> bool:
        """Return whether any request is quarantined; if not, no body need be inspected."""
        while self._quarantined_until and next(iter(self._quarantined_until.values())) <= now:
            self._quarantined_until.popitem(last=False)
        return bool(self._quarantined_until)

    def is_quarantined(self, fingerprint: Hashable) -> bool:
        """Return whether a request with this fingerprint must be sent alone."""
        return fingerprint in self._quarantined_until
