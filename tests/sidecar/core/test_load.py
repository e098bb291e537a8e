"""What a sidecar counts for whoever plans."""

from __future__ import annotations

from carpool.log_histogram import bin_of
from sidecar.core.batch import Batch, Closed
from sidecar.core.dispatch import Upstream
from sidecar.core.load import Load
from sidecar.core.request import Request


def test_latencies_are_from_arrival_to_answer() -> None:
    """Each rider has his own, and who came back after his deadline is late; then it begins anew."""
    load = Load(0.0)
    riders = [Request(1, "", 10.0), Request(2, "", 10.9, deadline=11.5), Request(3, "", 10.9)]
    batch = Batch(1, riders, 3, Upstream("a", 8), Closed.FULL, 11.0, 11.0, 1.0, "small")
    load.executed(batch, 12.0, idle=True)
    taken = load.take(12.0)
    assert {bin_of(2.0): 1, bin_of(1.1): 2} == taken.latency
    assert (1, 3) == (taken.late, taken.classes["small"].seats)
    assert {} == load.take(13.0).latency
