"""When a request that arrives now can expect its answer, if everything goes on as it does.

A forecast is made of what is in flight, and holds until that changes; what waits is asked for each
time. So arrivals cost next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecar.core.dispatch import Upstream
    from sidecar.core.in_flight import InFlight

__all__ = ["Forecast"]


class Forecast(NamedTuple):
    """What the instances will do.

    Attributes:
        free_at: when the first of them is expected to take the next batch.
        usual_seats: what a batch holds at the present load.
        seat_s: what a seat adds to the time of a batch.
        batch_s: how long a batch of the usual size takes.
        round_seats: seats that all of them take in a round.
        round_s: how long a round takes.
    """

    free_at: float
    usual_seats: int
    batch_s: float
    seat_s: float
    round_seats: int
    round_s: float

    @classmethod
    def of(cls, upstreams: Iterable[Upstream], in_flight: InFlight, now: float) -> Self | None:
        """The forecast for ``upstreams`` with ``in_flight``.

        None while too little is known, and while an instance is idle: a batch there delays no
        other, and teaches how long batches take.
        """
        able = [upstream for upstream in upstreams if upstream.takes(now)]
        known = [not upstream.free and upstream.exec_time.seasoned for upstream in able]
        if not (known and all(known)):
            return None
        rounds = [_round(upstream) for upstream in able]
        rate_rps = sum([seats / max(took_s, 1e-9) for seats, took_s in rounds])
        seats = sum([seats for seats, _ in rounds])
        # By the time it leaves, later arrivals will have filled its batch as they do at this load.
        usual = min(max([batch.seats for batch in in_flight]), max([seats for seats, _ in rounds]))
        batch_s, longer_s = (max([u.exec_time.mean(n) for u in able]) for n in (usual, usual + 1))
        free_at = min([in_flight.free_at(upstream, now) for upstream in able])
        return cls(free_at, usual, batch_s, longer_s - batch_s, seats, seats / rate_rps)

    def finish(self, seats: float, now: float) -> float:
        """When a request behind ``seats`` waiting items is answered."""
        finish = (now if now > self.free_at else self.free_at) + self.batch_s  # noqa: FURB136 - every request comes here
        if seats >= self.round_seats:
            rounds, seats = divmod(seats, self.round_seats)
            finish += rounds * self.round_s
        more = seats + 1 - self.usual_seats
        return finish + more * self.seat_s if more > 0 else finish

    def clear_s(self, seats: float) -> float:
        """Seconds in which the instances work through ``seats`` items."""
        return seats / self.round_seats * self.round_s


def _round(upstream: Upstream) -> tuple[int, float]:
    """Seats that an instance is done with in a round, and how long that takes.

    An instance that works on several batches at once is sent requests one by one.
    """
    if upstream.at_once > 1:
        return upstream.at_once, upstream.exec_time.mean(1)
    return upstream.batch_max, upstream.exec_time.mean(upstream.batch_max)
