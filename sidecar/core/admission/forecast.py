"""Forecasts when a request that arrives now is answered, if the load stays as it is.

A forecast is made from the batches in flight, and is valid until they change; the queue length is
passed in each time. So an arrival costs next to nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from sidecar.core.dispatch import Upstream, Upstreams
    from sidecar.core.exec_time import ExecTime
    from sidecar.core.in_flight import InFlight

__all__ = ["Forecast"]


class Forecast(NamedTuple):
    """Expected work of the instances. In a round each of them executes one full batch.

    Attributes:
        free_at: when the first instance is expected to take the next batch.
        usual_items: items in a batch at the present load.
        largest_items: most items in a batch.
        batch_s: execution time of a batch of the usual size.
        item_s: additional time for one more item.
        round_items: items that all instances together execute in a round.
        round_s: duration of a round.
    """

    free_at: float
    usual_items: int
    largest_items: int
    batch_s: float
    item_s: float
    round_items: int
    round_s: float

    @classmethod
    def of(cls, upstreams: Upstreams, in_flight: InFlight, now: float) -> Self | None:
        """Return the forecast for ``upstreams`` with ``in_flight``.

        None while too little is known, and while an instance is idle: a batch there delays no
        other, and shows how long batches take.
        """
        if upstreams.has_idle(now):
            return None
        available = [upstream for upstream in upstreams if upstream.available(now)]
        if not (available and all(u.exec_time.has_settled for u in available)):
            return None
        alike = Counter([_round(upstream) for upstream in available])  # usually all of them
        rate_rps = sum(
            count * each.items / max(each.exec_time.mean(each.size), 1e-9)
            for each, count in alike.items()
        )
        items = sum([count * each.items for each, count in alike.items()])
        # By the time it leaves, later arrivals will have filled its batch as they do at this load.
        largest = max([each.items for each in alike])
        usual = min(max([batch.item_count for batch in in_flight]), largest)
        batch_s, longer_s = (
            max([each.exec_time.mean(n) for each in alike]) for n in (usual, usual + 1)
        )
        free_at = min([in_flight.free_at(upstream, now) for upstream in available])
        return cls(free_at, usual, largest, batch_s, longer_s - batch_s, items, items / rate_rps)

    def finish_at(self, items_ahead: float, now: float) -> float:
        """Return when a request behind ``items_ahead`` waiting items is answered."""
        finish = (now if now > self.free_at else self.free_at) + self.batch_s  # noqa: FURB136 - every request comes here
        if items_ahead >= self.round_items:
            rounds, items_ahead = divmod(items_ahead, self.round_items)
            finish += rounds * self.round_s
        if items_ahead >= self.largest_items:  # other batches, which take instances in turn
            batches, items_ahead = divmod(items_ahead, self.largest_items)
            finish += batches * self.largest_items / self.round_items * self.round_s
        more = items_ahead + 1 - self.usual_items
        return finish + more * self.item_s if more > 0 else finish

    def backlog_s(self, items: float) -> float:
        """Return the seconds that the instances need to execute ``items``."""
        return items / self.round_items * self.round_s


class _Round(NamedTuple):
    """Number of items that an instance executes in a round, and the size of its batches."""

    exec_time: ExecTime
    size: int
    items: int


def _round(upstream: Upstream) -> _Round:
    """Return the round of an instance; one with a concurrency above 1 gets single requests."""
    if upstream.concurrency > 1:
        return _Round(upstream.exec_time, 1, upstream.concurrency)
    return _Round(upstream.exec_time, upstream.batch_max, upstream.batch_max)
