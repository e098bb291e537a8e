"""Decides which of several scalers plans, the holder of the Lease: a state machine without a clock.

Theory of operation
-------------------
The Lease is one object of the cluster, and the API server accepts a change of it only from a client
that knows its latest version. Its holder renews it. Other scalers read it, and measure by their own
clocks how long they have seen no change; after the Lease's duration they take it. So clocks of
different machines are never compared.

The holder stops before others may take the Lease: it leads for ``deadline_s`` from the start of the
last accepted renewal, and does nothing after that.

Each time the Lease is taken, there is a new term, which is the term of the plans made under it: the
time in milliseconds, or one more than the previous holder's term if that is later. It is also
higher than that of any scaler that ran without a Lease before (`scaler.persistence.next_term`), and
than those of a Lease that was deleted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

__all__ = ["Candidate", "Record", "Timing"]


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of the election.

    Attributes:
        duration_s: Seconds without a renewal after which others take the Lease.
        deadline_s: Seconds that the holder leads after its last renewal.
        renew_s: Seconds between two checks, and between two renewals.
    """

    duration_s: float = 10.0
    deadline_s: float = 7.0
    renew_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Record:
    """The content of a Lease.

    Attributes:
        holder: Identity of the holder; empty if it was given back.
        address: Address of the holder, ``HOST:PORT``.
        term_ms: When the holder took the Lease, in milliseconds since the epoch.
        renewed_ms: When the holder last renewed it, by its own clock.
        duration_s: Seconds without a renewal after which the Lease expires.
        transitions: Number of changes of the holder.
        version: Version of the object; empty if there is none.
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
    """One of several scalers that are ready to lead.

    Args:
        identity: Unique identity, different from any used before.
        address: Its address, published to others.
        timing: Durations of the election.

    Attributes:
        lease: The Lease as last seen; None if there is none.
        term_before: Term of the leader before this one; 0 if there was none.
    """

    def __init__(self, identity: str, address: str, timing: Timing | None = None) -> None:
        self._identity = identity
        self._address = address
        self.timing = timing or Timing()
        self.lease: Record | None = None
        self.term_before = 0
        self._seen_s = -math.inf
        self._until_s = -math.inf
        self._is_ending = False

    def term(self, now_s: float) -> int:
        """Return the term of the plans that it may make now; 0 if it may not lead."""
        return self.lease.term_ms if self.lease and now_s < self._until_s else 0

    def next(self, lease: Record | None, now_s: float, wall_ms: int) -> Record | None:
        """Return what to write to the Lease, given its content; None to write nothing.

        Args:
            lease: The Lease; None if there is none.
            now_s: Monotonic time.
            wall_ms: Milliseconds since the epoch.
        """
        if lease is None or self.lease is None or lease.version != self.lease.version:
            self._seen_s = now_s  # a sign of life
        self.lease = lease
        if self._is_ending:
            return None
        if lease is None:
            return self._taken(_NONE_YET, wall_ms)
        if lease.holder == self._identity:  # after a lapse with a later term
            leads = now_s < self._until_s
            return replace(lease, renewed_ms=wall_ms) if leads else self._taken(lease, wall_ms)
        self._until_s = -math.inf
        is_free = not lease.holder or now_s >= self._seen_s + lease.duration_s
        return self._taken(lease, wall_ms) if is_free else None

    def written(self, record: Record, began_s: float) -> None:
        """Record that the result of `next` was accepted; ``began_s`` is when the check began."""
        before = self.lease or _NONE_YET
        if record.term_ms != before.term_ms:
            self.term_before = before.term_ms
        self.lease = record
        if not self._is_ending:
            self._until_s = began_s + self.timing.deadline_s

    def end(self) -> None:
        """Stop leading, and neither take nor renew the Lease from now on."""
        self._is_ending = True
        self._until_s = -math.inf

    def released(self, wall_ms: int) -> Record | None:
        """Return what to write to let another lead at once; None if it is not the holder."""
        self._until_s = -math.inf
        if self.lease is None or self.lease.holder != self._identity:
            return None
        return replace(self.lease, holder="", address="", renewed_ms=wall_ms)

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
