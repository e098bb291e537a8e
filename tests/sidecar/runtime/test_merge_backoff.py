"""Suspension of request merging, in simulated time."""

from __future__ import annotations

from sidecar.core.batch import Batch, CloseReason, SplitBatch
from sidecar.core.dispatch import Upstream
from sidecar.core.request import Request
from sidecar.runtime.merge_backoff import PAUSE_S, VAIN_MAX, MergeBackoff


def batch(count: int, split_from: SplitBatch | None = None) -> Batch:
    """Return a batch of ``count`` requests with the same key."""
    requests = [Request(n, "k", 0.0) for n in range(count)]
    made = Batch(1, requests, count, Upstream("a", 8), CloseReason.FULL, 0.0, 0.0, 0.0, "", None)
    made.split_from = split_from
    return made


def in_vain(backoff: MergeBackoff, now: float, *, offenders: int = 0) -> None:
    """Record a merged batch of two that had to be answered one by one."""
    split = SplitBatch(2)
    for index in range(2):
        backoff.answered(batch(1, split), now, offends=index < offenders)


def test_merging_stops_after_failures_in_a_row_for_growing_pauses() -> None:
    """Merging for a key stops after a row of failures, for pauses that double up to 60 s."""
    backoff, now = MergeBackoff(), 0.0
    for _ in range(VAIN_MAX):
        assert not backoff.travels_alone("k", now)
        in_vain(backoff, now)
    for pause_s in (PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S, 8 * PAUSE_S, 60.0, 60.0):
        assert backoff.travels_alone("k", now + pause_s - 0.1)
        assert not backoff.travels_alone("other", now)
        now += pause_s
        assert not backoff.travels_alone("k", now)
        in_vain(backoff, now)


def test_answered_merged_request_resets_failure_count() -> None:
    """A merged request that is answered resets the row of failures."""
    backoff = MergeBackoff()
    for _ in range(3):
        for _ in range(VAIN_MAX - 1):
            in_vain(backoff, 0.0)
        backoff.answered(batch(2), 0.0, offends=False)
    assert not backoff.travels_alone("k", 0.0)


def test_failures_with_found_offender_do_not_stop_merging() -> None:
    """Failures with a found offender do not stop merging, as the offender is quarantined."""
    backoff = MergeBackoff()
    for _ in range(2 * VAIN_MAX):
        in_vain(backoff, 0.0, offenders=1)
    assert not backoff.travels_alone("k", 0.0)
