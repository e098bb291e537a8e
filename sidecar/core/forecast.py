"""When a request that arrives now can expect its answer, if everything goes on as it does.

A forecast is made of what is in flight, and holds until that changes; what waits is asked for each
time. So arrivals cost next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecar.core.dispatch import Upstream
    from sidecar.core.flights import Flights

__all__ = ["Forecast"]


class Forecast(NamedTuple):
    """What the instances will do.

    Attributes:
        free_at: when the first of them is expected to take the next batch.
        ride_s: how long a batch takes that leaves then.
        round_seats: seats that all of them take in a round.
        round_s: how long a round takes.
    """

    free_at: float
    ride_s: float
    round_seats: int
    round_s: float

    @classmethod
    def of(cls, upstreams: Iterable[Upstream], flights: Flights, now: float) -> Self | None:
        """The forecast for ``upstreams`` with ``flights``.

        None while too little is known, and while one of them is idle: a ride with it costs nobody
        anything, and teaches how long rides take.
        """
        able = [upstream for upstream in upstreams if upstream.takes(now)]
        known = [upstream.in_flight and upstream.exec_time.seasoned for upstream in able]
        if not (known and all(known)):
            return None
        rates = [u.batch_max / max(u.exec_time.mean(u.batch_max), 1e-9) for u in able]
        seats = sum([upstream.batch_max for upstream in able])
        # By the time it leaves, later arrivals will have filled its batch.
        full_s = max([upstream.exec_time.mean(upstream.batch_max) for upstream in able])
        free_at = min([flights.free_at(upstream, now) for upstream in able])
        return cls(free_at, full_s, seats, seats / sum(rates))

    def finish(self, seats: float, now: float) -> float:
        """When a request behind ``seats`` waiting items is answered."""
        rounds = seats // self.round_seats
        return max(now, self.free_at) + rounds * self.round_s + self.ride_s

    def clear_s(self, seats: float) -> float:
        """Seconds in which the instances work through ``seats`` items."""
        return seats / self.round_seats * self.round_s
