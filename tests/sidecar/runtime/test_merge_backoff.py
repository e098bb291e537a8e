"""When requests are not merged, in simulated time."""

from __future__ import annotations

from sidecar.core.batch import Batch, CloseReason, SplitBatch
from sidecar.core.dispatch import Upstream
from sidecar.core.request import Request
from sidecar.runtime.merge_backoff import PAUSE_S, VAIN_MAX, MergeBackoff


def batch(count: int, split_from: SplitBatch | None = None) -> Batch:
    """One with so many requests that have the same key."""
    requests = [Request(n, "k", 0.0) for n in range(count)]
    made = Batch(1, requests, count, Upstream("a", 8), CloseReason.FULL, 0.0, 0.0, 0.0, "", None)
    made.split_from = split_from
    return made


def in_vain(backoff: MergeBackoff, now: float, *, offenders: int = 0) -> None:
    """Two requests were merged, and then asked one by one."""
    split = SplitBatch(2)
    for index in range(2):
        backoff.answered(batch(1, split), now, offends=index < offenders)


def test_some_in_a_row_end_merging_for_a_while_then_for_longer() -> None:
    """Of requests with that key alone."""
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


def test_a_merged_request_that_is_answered_ends_the_row() -> None:
    """And so the pause starts again where it began."""
    backoff = MergeBackoff()
    for _ in range(3):
        for _ in range(VAIN_MAX - 1):
            in_vain(backoff, 0.0)
        backoff.answered(batch(2), 0.0, offends=False)
    assert not backoff.travels_alone("k", 0.0)


def test_offenders_that_were_found_are_no_reason() -> None:
    """They are quarantined; the others can be merged."""
    backoff = MergeBackoff()
    for _ in range(2 * VAIN_MAX):
        in_vain(backoff, 0.0, offenders=1)
    assert not backoff.travels_alone("k", 0.0)
