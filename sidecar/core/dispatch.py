"""Chooses the instance that takes the next batch.

Theory of operation
-------------------
Instances pull: a free instance takes a batch as soon as one may leave. A route says which classes
of instances may take an application's requests, and in which proportion. Among the free instances
the next batch goes to the class furthest behind its share (weighted deficit), and within the class
to the instance that was sent the fewest items. So the batch of one instance is filled before that
of the next is started, and the plan's proportions hold. A batch never waits for its proportion: if
one class is busy and another is not, it goes to the free one.

An instance holds one batch. A second is pipelined behind it only if it is full and the function is
fast, so that the gap between two batches is not lost; a batch is never made smaller for it. An
instance that reports a concurrency above 1 forms batches itself: it is sent all waiting requests,
in as many batches as it takes.

Outlier ejection: an instance that fails batch after batch while others do not is ejected. It gets
no batch for a while, then one on probation. An instance that hangs is ejected at once. An
unreachable instance is handled separately, and reported from outside (`up`); when it is back it was
restarted, and is not on probation.

Addresses and connections belong to `sidecar.runtime`; this module only counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from carpool.variants.instance_states import State
from sidecar.core.exec_time import ExecTime

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from carpool.plan import InstanceClass

__all__ = ["ANYWHERE", "Route", "Upstream", "Upstreams", "apply_conditions"]

_FAILURES_MAX = 5  # batches failed in a row; dividing a batch with one bad request makes two
_EJECTION_S = 5.0  # the first time; doubled each time after that
_EJECTION_MAX_S = 60.0
_FAST_S = 0.05  # above this a gap between batches is noise, and a batch can still change


@dataclass(slots=True, eq=False)
class Route:
    """The instances that may take some applications' requests.

    Attributes:
        weights: planned share by class of instances; None if any instance may take them.
        items_sent: items sent by class.
    """

    weights: Mapping[str, float] | None = None
    items_sent: dict[str, float] = field(default_factory=dict)

    def admits(self, upstream: Upstream) -> bool:
        """Return whether ``upstream`` may take this route's requests."""
        return self.weights is None or self.weights.get(upstream.instance_class, 0.0) > 0

    def precedence(self, upstream: Upstream) -> tuple[bool, float, float]:
        """Return a sort key: the instance furthest behind its share first, overloaded ones last."""
        if self.weights is None:
            return upstream.overloaded, 0.0, upstream.items_sent
        name = upstream.instance_class
        share = self.items_sent.get(name, 0.0) / self.weights[name]
        return upstream.overloaded, share, upstream.items_sent


ANYWHERE = Route()


@dataclass(slots=True, eq=False)
class Upstream:
    """One instance of the function.

    Attributes:
        name: unique; its address.
        batch_max: largest batch that it takes, in items.
        instance_class: the plan's class that it belongs to; empty without a plan.
        up: whether it can be reached at all.
        concurrency: batches that it executes at the same time, in any order.
        exclusive: whether it gets no further batch before its batches are back, whatever its
            concurrency, because the next may kill it.
        in_flight: batches that it holds.
        last_returned: when it last gave a batch back.
        items_sent: items in all batches sent to it.
        exec_time: model of its execution times; shared by the instances of a class.
        ejected_until: it gets no batch before this time.
        overloaded: it gets a batch only if no other instance is free.
        interfered: slowed down by its neighbours; it gets no batch while other instances are well.
        variant: variant of the model, if that has several.
        pipelines: whether it may hold a second batch while it executes its first.
    """

    name: str
    batch_max: int
    instance_class: str = ""
    up: bool = False
    concurrency: int = 1
    exclusive: bool = False
    in_flight: int = 0
    last_returned: float = 0.0
    items_sent: float = 0.0
    exec_time: ExecTime = field(default_factory=ExecTime)
    ejected_until: float = 0.0
    overloaded: bool = False
    interfered: bool = False
    variant: str = ""
    pipelines: bool = True
    _failures: int = 0  # batches in a row
    _ejections: int = 0

    def join(self, instance_class: InstanceClass, exec_time: ExecTime) -> None:
        """Serve as an instance of this class of the plan from now on."""
        self.batch_max = instance_class.batch_size
        self.instance_class = instance_class.name
        self.variant = instance_class.variant
        self.exec_time = exec_time

    def available(self, now: float) -> bool:
        """Return whether it may be sent batches at all."""
        return self.up and self.ejected_until <= now and not self.interfered

    @property
    def free(self) -> bool:
        """Whether it would start another batch now."""
        return self.in_flight < (1 if self.exclusive else self.concurrency)

    @property
    def pipelined(self) -> bool:
        """Whether it may get a second batch behind its first, as a gap between them matters."""
        serial = self.pipelines and self.concurrency == 1 and self.exec_time.settled
        return serial and self.exec_time.mean(self.batch_max) < _FAST_S

    def batch_limit(self, queued_items: int) -> int:
        """Return the largest batch to send it while ``queued_items`` wait.

        An instance that executes several batches gets small ones: each is answered when done.
        """
        capacity = self.concurrency - self.in_flight
        return (
            self.batch_max if capacity <= 1 else min(self.batch_max, -(-queued_items // capacity))
        )

    def batch_sent(self, items: int, route: Route) -> None:
        """Count a batch that was just sent to it."""
        self.in_flight += 1
        self.items_sent += items
        if route.weights is not None:
            name = self.instance_class
            route.items_sent[name] = route.items_sent.get(name, 0.0) + items

    def succeeded(self) -> None:
        """Forget earlier failures, as it answered a batch."""
        self._failures = self._ejections = 0

    def failed(self, now: float, *, has_alternative: bool) -> None:
        """Count a batch that it failed as a whole; eject it if failures repeat.

        It is ejected only if ``has_alternative``, so that others can continue without it.
        """
        self._failures += 1
        if self._failures >= _FAILURES_MAX and has_alternative:
            self._eject(now)

    def hung(self, now: float) -> None:
        """Eject it, as it did not answer a batch in time and may still be busy with it."""
        if self.ejected_until <= now:
            self._eject(now)

    def came_up(self) -> None:
        """Note that it can be reached again, and end its ejection."""
        self.up = True
        self.ejected_until = 0.0

    def _eject(self, now: float) -> None:
        self.ejected_until = now + min(_EJECTION_S * 2**self._ejections, _EJECTION_MAX_S)
        self._ejections += 1
        self._failures = _FAILURES_MAX - 1  # on probation: one more failure ejects it again


class Upstreams:
    """The instances of one function."""

    __slots__ = ("_by_name",)

    def __init__(self) -> None:
        self._by_name: dict[str, Upstream] = {}

    def __iter__(self) -> Iterator[Upstream]:
        return iter(self._by_name.values())

    def add(self, upstream: Upstream) -> None:
        """Add an instance, or replace the one of that name.

        Its count of items sent starts at the lowest count of the others.
        """
        others = [other.items_sent for other in self if other.name != upstream.name]
        upstream.items_sent = min(others, default=0.0)
        self._by_name[upstream.name] = upstream

    def reaches(self, route: Route) -> bool:
        """Return whether an instance of ``route`` can be reached."""
        return any(upstream.up and route.admits(upstream) for upstream in self)

    def keep(self, upstreams: Collection[Upstream]) -> None:
        """Drop all other instances; batches that those have in flight still come back."""
        self._by_name = {u.name: u for u in self if u in upstreams}

    def next_free(self, route: Route, now: float) -> Upstream | None:
        """Return the free instance of ``route`` with the highest precedence; None if none."""
        chosen: Upstream | None = None
        for upstream in self._by_name.values():
            if not (upstream.free and upstream.available(now) and route.admits(upstream)):
                continue
            if chosen is None or route.precedence(upstream) < route.precedence(chosen):
                chosen = upstream
        return chosen

    def has_capacity(self, now: float) -> bool:
        """Return whether any instance would take a full batch now."""
        for upstream in self._by_name.values():
            batches_max = 2 if upstream.pipelined else upstream.concurrency
            if upstream.in_flight < batches_max and upstream.available(now):
                return True
        return False

    def next_to_pipeline(self, route: Route, queued_items: int, now: float) -> Upstream | None:
        """Return a fast instance with one batch if ``queued_items`` fill another; else None."""
        for upstream in self._by_name.values():
            if (
                upstream.in_flight == 1
                and queued_items >= upstream.batch_max
                and upstream.pipelined
                and upstream.available(now)
                and route.admits(upstream)
            ):
                return upstream
        return None

    def has_alternative(self, upstream: Upstream, now: float) -> bool:
        """Return whether another instance of its class could continue without ``upstream``."""
        return any(
            other is not upstream
            and other.instance_class == upstream.instance_class
            and other.available(now)
            for other in self
        )

    def next_ejection_ends(self, now: float) -> float:
        """Return when the next ejected instance is tried again; ``inf`` if none is ejected."""
        times = [u.ejected_until for u in self if u.up and u.ejected_until > now]
        return min(times, default=float("inf"))


def apply_conditions(
    upstreams: Iterable[Upstream], conditions: Mapping[str, str]
) -> dict[tuple[str, str], State]:
    """Apply the scaler's view of instances; those that it does not name are well.

    Interfered instances get batches all the same if no instance of their class is well.

    Args:
        upstreams: the instances.
        conditions: "overloaded" or "interfered", by the name of an instance.

    Returns:
        The state of each reachable instance, by its class and name.
    """
    reachable = [upstream for upstream in upstreams if upstream.up]
    states = {
        (each.instance_class, each.name): State(conditions.get(each.name, State.ACTIVE))
        for each in reachable
    }
    well = {name for (name, _), state in states.items() if state is State.ACTIVE}
    for each in reachable:
        state = states[each.instance_class, each.name]
        each.overloaded = state is State.OVERLOADED
        each.interfered = state is State.INTERFERED and each.instance_class in well
    return states
