"""Which of several scalers plans: the one that holds the Lease, a state machine without a clock.

Theory of operation
-------------------
The Lease is one object of the cluster, and the API server accepts a change of it only from what
knows its latest version. Its holder renews it. Others look at it, and measure by their own clock
for how long they have seen no change; after the Lease's duration they take it. So no two clocks are
compared.

The holder stops earlier than others may take it: it leads for ``deadline_s`` from when it began the
renewal that was accepted last, and anything after that it does not do.

Each taking of the Lease has a term, which is the term of the plans that are made under it: the
time in milliseconds, and above that of the holder before, whatever their clocks say. It is higher,
too, than that of any scaler that ran without a Lease before (`scaler.persistence.next_term`), and
than those before a Lease that was deleted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

__all__ = ["Candidate", "Record", "Timing"]


@dataclass(frozen=True, slots=True)
class Timing:
    """How long what takes.

    Attributes:
        duration_s: How long others see no renewal before they take the Lease.
        deadline_s: How long the holder leads after its last renewal.
        renew_s: Between two looks, and between two renewals.
    """

    duration_s: float = 10.0
    deadline_s: float = 7.0
    renew_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Record:
    """What a Lease says.

    Attributes:
        holder: Whose it is; empty: it was given back.
        address: Where the holder answers, ``HOST:PORT``.
        term_ms: When it took the Lease, in milliseconds since the epoch.
        renewed_ms: When it renewed it last, by its own clock.
        duration_s: For how long it may be silent.
        transitions: How often the holder has changed.
        version: Of the object; empty: there is none.
    """

    holder: str
    address: str
    term_ms: int
    renewed_ms: int
    duration_s: float
    transitions: int = 0
    version: str = ""


_NONE_YET = Record("", "", 0, 0, 0.0, transitions=-1)


class Candidate:
    """One of several that want to lead.

    Args:
        identity: Unlike that of any other, and of any before.
        address: Where it answers, for others to know.
        timing: How long what takes.

    Attributes:
        found: The Lease as it was seen last; None: there is none.
    """

    def __init__(self, identity: str, address: str, timing: Timing | None = None) -> None:
        self._identity = identity
        self._address = address
        self.timing = timing or Timing()
        self.found: Record | None = None
        self._seen_s = -math.inf
        self._until_s = -math.inf
        self._is_ending = False

    def term(self, now_s: float) -> int:
        """Of the plans that it may make now; 0: another may hold the Lease, so none."""
        return self.found.term_ms if self.found and now_s < self._until_s else 0

    def next(self, found: Record | None, now_s: float, wall_ms: int) -> Record | None:
        """What to write, now that the Lease says this; None: nothing.

        Args:
            found: The Lease; None: there is none.
            now_s: Monotonic.
            wall_ms: The time, since the epoch.
        """
        if found is None or self.found is None or found.version != self.found.version:
            self._seen_s = now_s  # a sign of life
        self.found = found
        if self._is_ending:
            return None
        if found is None:
            return self._taken(_NONE_YET, wall_ms)
        if found.holder == self._identity:  # after a lapse with a later term
            leads = now_s < self._until_s
            return replace(found, renewed_ms=wall_ms) if leads else self._taken(found, wall_ms)
        self._until_s = -math.inf
        is_free = not found.holder or now_s >= self._seen_s + found.duration_s
        return self._taken(found, wall_ms) if is_free else None

    def written(self, record: Record, began_s: float) -> None:
        """What `next` said was accepted, and is this now; ``began_s`` is when the look began."""
        self.found = record
        if not self._is_ending:
            self._until_s = began_s + self.timing.deadline_s

    def end(self) -> None:
        """It leads no more, and takes and renews nothing from now on."""
        self._is_ending = True
        self._until_s = -math.inf

    def released(self, wall_ms: int) -> Record | None:
        """What to write so that another may lead at once; None: it is not this one's."""
        self._until_s = -math.inf
        if self.found is None or self.found.holder != self._identity:
            return None
        return replace(self.found, holder="", address="", renewed_ms=wall_ms)

    def _taken(self, before: Record, wall_ms: int) -> Record:
        return Record(
            holder=self._identity,
            address=self._address,
            term_ms=max(wall_ms, before.term_ms + 1),
            renewed_ms=wall_ms,
            duration_s=self.timing.duration_s,
            transitions=before.transitions + (before.holder != self._identity),
            version=before.version,
        )
