"""Overload in simulated time: responses in time, refusals and recovery."""

from __future__ import annotations

import pytest

from tests.sidecar.runtime.simulated_loop import Costs, Loop, Outcome

# A quick handler: the sidecar is the bottleneck. And one that is the bottleneck itself.
TINY = {"slo_s": 0.05, "batch_max": 64, "costs": Costs()}
TINY_RPS = 19_000.0
WIDE = {"slo_s": 0.1, "batch_max": 32, "costs": Costs(handler_s=lambda n: 0.0024 + 0.0005 * n)}
WIDE_RPS = 32 / (0.0024 + 0.0005 * 32)
BOTH = pytest.mark.parametrize(
    ("function", "capacity_rps"), [(TINY, TINY_RPS), (WIDE, WIDE_RPS)], ids=["tiny", "wide"]
)
LONG = pytest.param(TINY, TINY_RPS, id="tiny", marks=pytest.mark.slow)  # hundreds of thousands


def flooded(function: dict[str, object], capacity_rps: float, times: float) -> list[Outcome]:
    """Run half the capacity, a multiple of it, then half again, from 2000 connections."""
    loop = Loop(connections=2000, **function)  # type: ignore[arg-type]
    half_rps = capacity_rps / 2
    return loop.run((half_rps, 0.3), (times * capacity_rps, 1.0), (half_rps, 0.7))


@BOTH
@pytest.mark.parametrize("times", [0.5, 0.9])
def test_no_request_is_refused_below_capacity(
    function: dict[str, object], capacity_rps: float, times: float
) -> None:
    """Below the capacity, no request is refused and all are in time."""
    for outcome in flooded(function, capacity_rps, times):
        assert (0, 0) == (outcome.refused, outcome.unsent)
        assert outcome.in_time == outcome.due


def test_all_requests_are_in_time_after_pause_of_process() -> None:
    """After a pause of the process, parked requests fill batches and are all in time."""
    loop = Loop(connections=2000, **TINY)  # type: ignore[arg-type]
    loop.pauses = [(0.1, 0.02), (0.35, 0.02)]
    (outcome,) = loop.run((0.9 * TINY_RPS, 0.6))
    assert (outcome.due, 0, 0) == (outcome.in_time, outcome.refused, outcome.unsent)


@BOTH
def test_at_twice_the_capacity_nearly_half_are_in_time(
    function: dict[str, object], capacity_rps: float
) -> None:
    """At twice the capacity 45 % of the requests are in time, and the others soon refused."""
    _, during, after = flooded(function, capacity_rps, 2.0)
    assert during.in_time > 0.45 * during.due
    assert max(during.waits_s, default=0.0) < 0.4
    assert after.in_time > 0.99 * after.due


@pytest.mark.parametrize(
    ("function", "capacity_rps"), [LONG, pytest.param(WIDE, WIDE_RPS, id="wide")]
)
def test_goodput_holds_at_twenty_times_capacity(
    function: dict[str, object], capacity_rps: float
) -> None:
    """At 20 times the capacity, 90 % of it is still served, and refusals take at most 0.5 s."""
    _, during, after = flooded(function, capacity_rps, 20.0)
    assert during.good > 0.9 * capacity_rps
    assert during.in_time > 0.95 * during.good
    assert max(during.waits_s) < 0.5
    assert after.in_time > 0.98 * after.due
