"""What a sidecar counts for the scaler."""

from __future__ import annotations

from carpool.log_histogram import bin_of
from sidecar.core.batch import Batch, CloseReason
from sidecar.core.dispatch import Upstream
from sidecar.core.load import Load
from sidecar.core.request import Request


def test_latencies_are_from_arrival_to_answer() -> None:
    """Each request has its own; one answered after its deadline is late; then counts restart."""
    load = Load(0.0)
    requests = [Request(1, "", 10.0), Request(2, "", 10.9, deadline=11.5), Request(3, "", 10.9)]
    batch = Batch(1, requests, 3, Upstream("a", 8), CloseReason.FULL, 11.0, 11.0, 1.0, "small")
    load.executed(batch, 12.0, idle=True)
    sample = load.take(12.0)
    assert {bin_of(2.0): 1, bin_of(1.1): 2} == sample.latency
    assert (1, 3) == (sample.late, sample.classes["small"].item_count)
    assert {} == load.take(13.0).latency
