"""A run on a stack counts what becomes of a request as a simulation does."""

from __future__ import annotations

import time

import pytest

from faas_stack.compare.outcomes import CompareOutcomes


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
def test_every_answer_is_counted_once(
    status: int, latency_s: float, counted: str, missed: int
) -> None:
    """By its status, and a good one by its objective."""
    outcomes = CompareOutcomes(slo_s=0.2, app="web")
    outcomes.answered(status, latency_s, 4)
    served = outcomes.served
    names = ("done", "expired", "refused", "failed")
    found = [name for name in names for _ in range(int(getattr(served, name)))]
    assert ["done" if counted == "late" else counted] == found
    assert (missed, missed) == (served.missed, served.missed_by_app.get("web", 0))
    assert (0.25 if status == 200 else 0.0) == served.batches


def test_a_request_without_an_answer_has_failed() -> None:
    """And missed its objective."""
    outcomes = CompareOutcomes(slo_s=0.2, app="web")
    outcomes.failed("no connection")
    assert (1, {"web": 1.0}) == (outcomes.served.failed, outcomes.served.missed_by_app)


def test_a_request_that_came_while_none_was_ready_is_a_cold_start() -> None:
    """One that came later is none."""
    outcomes = CompareOutcomes(slo_s=None)
    outcomes.asleep_s = time.perf_counter() - 5.0
    outcomes.answered(200, 1.0, 1)
    assert 0 == outcomes.served.cold
    outcomes.answered(200, 60.0, 1)
    assert 1 == outcomes.served.cold
