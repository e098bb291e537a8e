"""Stops merging requests for a while if merging is in vain.

A merged request may fail although each of its requests succeeds alone: the response has a NaN,
which is not JSON, or a list that cannot be divided. Dividing the batch then finds no offender, and
every further merged request would also be in vain. So after some of these, similar requests are
sent alone: for five seconds, then twice as long each time, up to a minute. One successful response
to a merged request ends this.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from sidecar.core.batch import Batch

__all__ = ["PAUSE_S", "VAIN_MAX", "MergeBackoff"]

log = logging.getLogger(__name__)

VAIN_MAX = 4  # merged requests in a row
PAUSE_S = 5.0
_PAUSE_MAX_S = 60.0
_KEYS_MAX = 1024


@dataclass(slots=True)
class _Row:
    in_vain: int = 0
    until: float = 0.0


class MergeBackoff:
    """Counts merged requests that were sent in vain, by the key that their parts share."""

    def __init__(self) -> None:
        self._rows: OrderedDict[int, _Row] = OrderedDict()  # by hash, as keys may be large

    def travels_alone(self, key: Hashable, now: float) -> bool:
        """Return whether requests with this key are not merged now."""
        if not self._rows:
            return False
        row = self._rows.get(hash(key))
        return row is not None and now < row.until

    def answered(self, batch: Batch, now: float, *, offends: bool) -> None:
        """Note that the server answered ``batch``, so that it need not be divided.

        Args:
            batch: as it was sent.
            now: seconds, monotonic.
            offends: whether it is a single request and the response is an error.
        """
        split, key = batch.split_from, hash(batch.requests[0].key)
        if split is None:
            if len(batch.requests) > 1:
                self._rows.pop(key, None)
        elif not offends:
            split.answered += len(batch.requests)
            if split.answered == split.size:
                self._sent_in_vain(key, now)

    def _sent_in_vain(self, key: int, now: float) -> None:
        row = self._rows.setdefault(key, _Row())
        self._rows.move_to_end(key)
        if len(self._rows) > _KEYS_MAX:
            self._rows.popitem(last=False)
        row.in_vain += 1
        if row.in_vain >= VAIN_MAX and row.until <= now:
            doublings = min(row.in_vain - VAIN_MAX, 8)
            pause_s = min(PAUSE_S * 2**doublings, _PAUSE_MAX_S)
            row.until = now + pause_s
            log.warning(
                "%d merged requests failed although their parts succeed alone; such requests are "
                "not merged for %g s",
                row.in_vain,
                pause_s,
            )
