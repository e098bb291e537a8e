"""Which instance takes the next batch.

Theory of operation
-------------------
Instances pull: one that is free takes a batch as soon as one may leave. A route says which
classes of instances may take an application's requests, and in which proportion: among those
that are free, the next batch goes to the class furthest behind its share (weighted deficit), and
within it to the instance that has had the least. So one instance's batch is filled before the next
one's is begun, and the plan's proportions hold. Where an instance is busy and another is not, the
batch does not wait for the proportion.

An instance holds one batch. A second may be sent behind it only when that is full and the function
is quick, so that the moments between two batches are not lost; it is never the reason for a batch
smaller than it could be. An instance that says it works on several batches at once (`at_once`)
puts them together itself: it is sent whatever waits, in as many batches as it takes.

An instance that fails batch after batch while others do not is ejected: it gets none for a while,
then one to prove itself. One that hangs is ejected at once. Being unreachable is another matter,
and told from outside (`up`); an instance that is back was restarted, and owes no proof.
Addresses and connections belong to `sidecar.runtime`; this file counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sidecar.core.exec_time import ExecTime

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

__all__ = ["ANYWHERE", "Route", "Upstream", "Upstreams"]

_STRIKES = 5  # batches failed in a row; dividing a batch with one bad request makes two
_EJECTED_S = 5.0  # the first time; twice as long each time after
_EJECTED_MAX_S = 60.0
_QUICK_S = 0.05  # above this a gap between batches is noise, and a batch can change its mind


@dataclass(slots=True, eq=False)
class Route:
    """Where some applications' requests may go.

    Attributes:
        weights: planned share by class of instances; None: any instance.
        served: seats sent, by class.
    """

    weights: Mapping[str, float] | None = None
    served: dict[str, float] = field(default_factory=dict)

    def admits(self, upstream: Upstream) -> bool:
        """Whether ``upstream`` may take this route's requests."""
        return self.weights is None or self.weights.get(upstream.instance_class, 0.0) > 0

    def behind(self, upstream: Upstream) -> tuple[bool, float, float]:
        """Sorts the instance first that is furthest behind its share, those strained last."""
        if self.weights is None:
            return upstream.strained, 0.0, upstream.served
        name = upstream.instance_class
        share = self.served.get(name, 0.0) / self.weights[name]
        return upstream.strained, share, upstream.served


ANYWHERE = Route()


@dataclass(slots=True, eq=False)
class Upstream:
    """One instance of the function.

    Attributes:
        name: unique; its address.
        batch_max: largest batch that it takes, in seats.
        at_once: batches that it works on at the same time, whatever their order.
        instance_class: the plan's class that it belongs to; empty without a plan.
        up: whether it can be reached at all.
        alone: it gets no further batch before its batches are back, however many it could work on:
            the next may kill it.
        in_flight: batches that it holds.
        landed: when it last gave a batch back.
        served: seats sent to it.
        exec_time: what is known of its execution times; shared by the instances of a class.
        ejected_until: it gets no batch before this time.
        strained: it was seen overloaded, and gets a batch only where no other instance is free.
        shunned: it is slowed by its neighbours, and gets none while other instances are not.
        variant: of the model, where that has several.
    """

    name: str
    batch_max: int
    instance_class: str = ""
    up: bool = False
    at_once: int = 1
    alone: bool = False
    in_flight: int = 0
    landed: float = 0.0
    served: float = 0.0
    exec_time: ExecTime = field(default_factory=ExecTime)
    ejected_until: float = 0.0
    strained: bool = False
    shunned: bool = False
    variant: str = ""
    _strikes: int = 0
    _ejections: int = 0

    def takes(self, now: float) -> bool:
        """Whether it may be sent batches at all."""
        return self.up and self.ejected_until <= now and not self.shunned

    @property
    def free(self) -> bool:
        """Whether it would begin with another batch now."""
        return self.in_flight < (1 if self.alone else self.at_once)

    @property
    def quick(self) -> bool:
        """Whether the moments between two of its batches count."""
        alone = self.at_once == 1 and self.exec_time.settled
        return alone and self.exec_time.mean(self.batch_max) < _QUICK_S

    def limit(self, seats: int) -> int:
        """The largest batch to send it while ``seats`` wait.

        An instance that takes several batches at once gets small ones: each is answered when done.
        """
        room = self.at_once - self.in_flight
        return self.batch_max if room <= 1 else min(self.batch_max, -(-seats // room))

    def took(self, seats: int, route: Route) -> None:
        """Count a batch that it has just been sent."""
        self.in_flight += 1
        self.served += seats
        if route.weights is not None:
            name = self.instance_class
            route.served[name] = route.served.get(name, 0.0) + seats

    def succeeded(self) -> None:
        """It answered a batch: what it failed before is forgotten."""
        self._strikes = self._ejections = 0

    def failed(self, now: float, *, spare: bool) -> None:
        """It failed a batch as a whole; ``spare``: there are others to go on without it."""
        self._strikes += 1
        if self._strikes >= _STRIKES and spare:
            self._eject(now)

    def hung(self, now: float) -> None:
        """It did not answer a batch in time, and may well be busy with it still."""
        if self.ejected_until <= now:
            self._eject(now)

    def came_up(self) -> None:
        """Note that it can be reached again."""
        self.up = True
        self.ejected_until = 0.0

    def _eject(self, now: float) -> None:
        self.ejected_until = now + min(_EJECTED_S * 2**self._ejections, _EJECTED_MAX_S)
        self._ejections += 1
        self._strikes = _STRIKES - 1  # one batch will be its proof


class Upstreams:
    """The instances of one function."""

    __slots__ = ("_by_name",)

    def __init__(self) -> None:
        self._by_name: dict[str, Upstream] = {}

    def __iter__(self) -> Iterator[Upstream]:
        return iter(self._by_name.values())

    def add(self, upstream: Upstream) -> None:
        """Add an instance, or replace the one of that name; it starts with the others' share."""
        others = [other.served for other in self if other.name != upstream.name]
        upstream.served = min(others, default=0.0)
        self._by_name[upstream.name] = upstream

    def keep(self, upstreams: Collection[Upstream]) -> None:
        """Send batches to no others; batches that those have in flight still come back."""
        self._by_name = {u.name: u for u in self if u in upstreams}

    def next_free(self, route: Route, now: float) -> Upstream | None:
        """The free instance furthest behind its share that ``route`` admits, or None."""
        chosen: Upstream | None = None
        for upstream in self._by_name.values():
            if not (upstream.free and upstream.takes(now) and route.admits(upstream)):
                continue
            if chosen is None or route.behind(upstream) < route.behind(chosen):
                chosen = upstream
        return chosen

    def has_capacity(self, now: float) -> bool:
        """Whether any instance would take a full batch now."""
        for upstream in self._by_name.values():
            room = 2 if upstream.quick else upstream.at_once
            if upstream.in_flight < room and upstream.takes(now):
                return True
        return False

    def next_behind(self, route: Route, seats: int, now: float) -> Upstream | None:
        """A quick instance with one batch, to which ``seats`` waiting are another full one."""
        for upstream in self._by_name.values():
            if (
                upstream.in_flight == 1
                and seats >= upstream.batch_max
                and upstream.quick
                and upstream.takes(now)
                and route.admits(upstream)
            ):
                return upstream
        return None

    def spare(self, upstream: Upstream, now: float) -> bool:
        """Whether another instance of its class could go on without ``upstream``."""
        return any(
            other is not upstream
            and other.instance_class == upstream.instance_class
            and other.takes(now)
            for other in self
        )

    def returns_at(self, now: float) -> float:
        """When the next ejected instance is tried again; ``inf`` if none is ejected."""
        times = [u.ejected_until for u in self if u.up and u.ejected_until > now]
        return min(times, default=float("inf"))
