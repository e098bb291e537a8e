"""A second count of requests: held against the sidecars' own, with patience."""

from __future__ import annotations

import pytest

from scaler.core.live.recount import Recount


def minutes(theirs: float, ours: float, lag_s: float = 0.0, until_s: int = 120) -> Recount:
    """Two minutes at these rates, as a source sees them that is late by so much."""
    recount = Recount("the gateway")
    for now_s in range(until_s + 1):
        recount.note(10 + max(0.0, now_s - lag_s) * theirs, int(now_s * ours), float(now_s))
    return recount


@pytest.mark.parametrize(("theirs", "ours"), [(50, 50), (52, 50), (0.2, 0.3), (0, 0)])
def test_what_chance_and_edges_explain_is_no_disagreement(theirs: float, ours: float) -> None:
    """A tenth, or a few requests, more or less."""
    assert [] == minutes(theirs, ours).said()


def test_more_and_fewer_are_told_apart() -> None:
    """Who counts more than the sidecars knows of some that are not heard of here."""
    assert "counts 80/s where the sidecars count 50/s: reports" in minutes(80, 50).said()[0]
    assert "counts 50/s where the sidecars count 80/s: somebody" in minutes(50, 80).said()[0]


@pytest.mark.parametrize("lag_s", [5.0, 15.0])
def test_a_source_that_is_late_is_not_wrong(lag_s: float) -> None:
    """While a load begins or ends, Prometheus is behind by as long as it takes to ask."""
    recount = Recount("Prometheus")
    for now_s in range(400):
        ours, theirs = (max(0.0, min(at_s, 200.0) - 100.0) for at_s in (now_s, now_s - lag_s))
        recount.note(7 + 90 * theirs, int(90 * ours), float(now_s))
        assert [] == recount.said(), now_s


def test_nothing_is_said_at_once() -> None:
    """Half a minute at the least has to have been counted."""
    assert [] == minutes(80, 50, until_s=40).said()
    assert [] != minutes(80, 50, until_s=55).said()


def test_who_starts_anew_is_not_compared_with_before() -> None:
    """A gateway that was restarted counts from none."""
    recount = minutes(50, 50)
    for second in range(40):
        recount.note(second * 50.0, 6000 + second * 50, 121.0 + second)
        assert [] == recount.said()


def test_who_does_not_count_a_function_is_no_source() -> None:
    """Go leaves a count of none out."""
    recount = Recount("the gateway")
    for now_s in range(120):
        recount.note(0.0, now_s * 50, float(now_s))
    assert [] == recount.said()
