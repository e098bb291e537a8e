"""Tests that a run on a stack counts the outcomes of requests as a simulation does."""

from __future__ import annotations

import time

import pytest

from faas_stack.compare.compare_outcomes import CompareOutcomes


@pytest.mark.parametrize(
    ("status", "latency_s", "counted", "missed"),
    [
        (200, 0.1, "done", 0),
        (200, 0.3, "late", 1),
        (504, 0.1, "expired", 1),
        (429, 0.1, "refused", 1),
        (503, 0.1, "refused", 1),
        (502, 0.1, "failed", 1),
    ],
)
def test_each_response_is_counted_once(
    status: int, latency_s: float, counted: str, missed: int
) -> None:
    """A response is counted once by its status, and as missed if it failed or is late."""
    outcomes = CompareOutcomes(slo_s=0.2, app="web")
    outcomes.answered(status, latency_s, 4)
    counts = outcomes.counts
    names = ("done", "expired", "refused", "failed")
    found = [name for name in names for _ in range(int(getattr(counts, name)))]
    assert ["done" if counted == "late" else counted] == found
    assert (missed, missed) == (counts.missed, counts.missed_by_app.get("web", 0))
    assert (0.25 if status == 200 else 0.0) == counts.batches


def test_request_without_response_has_failed() -> None:
    """A request without a response has failed and missed its objective."""
    outcomes = CompareOutcomes(slo_s=0.2, app="web")
    outcomes.failed("no connection")
    assert (1, {"web": 1.0}) == (outcomes.counts.failed, outcomes.counts.missed_by_app)


def test_request_without_ready_replica_is_a_cold_start() -> None:
    """A request that came while no replica was ready is a cold start, and a later one is not."""
    outcomes = CompareOutcomes(slo_s=None)
    outcomes.asleep_s = time.perf_counter() - 5.0
    outcomes.answered(200, 1.0, 1)
    assert 0 == outcomes.counts.cold
    outcomes.answered(200, 60.0, 1)
    assert 1 == outcomes.counts.cold
