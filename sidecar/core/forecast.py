"""When a request that arrives now can expect its answer, if everything goes on as it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from sidecar.core.dispatch import Upstream
    from sidecar.core.flights import Flights

__all__ = ["clear_s", "predicted_finish"]


def predicted_finish(
    upstreams: Collection[Upstream], flights: Flights, seats: float, now: float
) -> float:
    """Seconds on the shell's axis; ``now`` while too little is known to say.

    Args:
        upstreams: the instances that can take batches.
        flights: the batches in flight.
        seats: items that wait already.
        now: the time.
    """
    if not upstreams or not all(upstream.exec_time.settled for upstream in upstreams):
        return now
    idle = [upstream for upstream in upstreams if not upstream.in_flight]
    if idle:
        return now + min([upstream.exec_time.mean(1) for upstream in idle])
    round_seats = sum([upstream.batch_max for upstream in upstreams])
    before_s = clear_s(upstreams, seats // round_seats * round_seats)
    # By the time it leaves, later arrivals will have filled its batch.
    ride_s = max([upstream.exec_time.bound(upstream.batch_max) for upstream in upstreams])
    return min([flights.free_at(upstream, now) for upstream in upstreams]) + before_s + ride_s


def clear_s(upstreams: Collection[Upstream], seats: float) -> float:
    """Seconds in which ``upstreams`` work through ``seats`` items; 0 while nothing is known."""
    times = [(u.batch_max, u.exec_time.mean(u.batch_max)) for u in upstreams]
    rate = sum([size / took for size, took in times if took > 0])
    return seats / rate if rate else 0.0
