"""Load that a sidecar reports to the scaler."""

from __future__ import annotations

from carpool.log_histogram import bin_of
from sidecar.core.batch import Batch, CloseReason
from sidecar.core.dispatch import Upstream
from sidecar.core.load_counter import LoadCounter
from sidecar.core.request import Request


def test_latency_is_measured_from_arrival_to_response() -> None:
    """Latency runs from each arrival to its answer, and counts restart with each sample."""
    load = LoadCounter(0.0)
    requests = [Request(1, "", 10.0), Request(2, "", 10.9, deadline=11.5), Request(3, "", 10.9)]
    batch = Batch(1, requests, 3, Upstream("a", 8), CloseReason.FULL, 11.0, 11.0, 1.0, "small")
    load.executed(batch, 12.0, idle=True)
    load.answered(requests, 12.0)
    sample = load.take(12.0)
    assert {bin_of(2.0): 1, bin_of(1.1): 2} == sample.latency
    assert (1, 3) == (sample.late, sample.executed["small"]["a"].item_count)
    assert {} == load.take(13.0).latency


def test_applications_of_sample_are_bounded() -> None:
    """However many demands callers state, few are counted separately, and no request is lost."""
    load = LoadCounter(0.0)
    for number in range(10_000):
        load.arrived(f"cost={number}", float(number))
    arrivals = load.take(10_000.0).arrivals
    assert 10_000 == sum(arrivals.values())
    assert len(arrivals) < 1100
