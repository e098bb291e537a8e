"""What a sidecar has to do, counted for the scaler: arrivals, idle times, executions.

Counting happens on the request path, so it is plain additions; `take` begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from carpool.log_histogram import Spread, bin_of
from sidecar.core.surge import Surge

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.core.batch import Batch

__all__ = ["AppLoad", "Executed", "Load", "Taken"]


@dataclass(slots=True)
class AppLoad:
    """An application's requests, and the times between them."""

    arrivals: int = 0
    gaps: Spread = field(default_factory=dict)


@dataclass(slots=True)
class Executed:
    """Batches that came back from one class of instances."""

    batches: int = 0
    seats: int = 0
    exec_s: float = 0.0


@dataclass(slots=True)
class Taken:
    """What was counted since the last time.

    Attributes:
        period_s: Since then.
        surging: More came than what was counted before lets expect.
        instances: The same by instance.
        late: Answers that came after they were due.
        latency: Times from arrival to answer.
    """

    period_s: float = 0.0
    surging: bool = False
    apps: dict[str, AppLoad] = field(default_factory=dict)
    classes: dict[str, Executed] = field(default_factory=dict)
    instances: dict[str, Executed] = field(default_factory=dict)
    idle: Spread = field(default_factory=dict)
    late: int = 0
    latency: Spread = field(default_factory=dict)


class Load:
    """Counts.

    Args:
        now: Seconds, on the axis of requests.

    Attributes:
        surged: Called when so much comes that what was counted should be taken now.
    """

    __slots__ = ("_counted", "_idle_since", "_last", "_since", "_surge", "surged")

    def __init__(self, now: float) -> None:
        self._since = now
        self._counted = Taken()
        self._last: dict[str, float] = {}
        self._idle_since: float | None = now
        self._surge = Surge(now)
        self.surged: Callable[[], None] = lambda: None

    def arrived(self, app: str, now: float) -> None:
        """A request has come."""
        counted = self._counted
        found = counted.apps.get(app)
        if found is None:
            found = counted.apps[app] = AppLoad()
        found.arrivals += 1
        last = self._last.get(app)
        self._last[app] = now
        if last is not None:
            number = bin_of(now - last)
            found.gaps[number] = found.gaps.get(number, 0) + 1
        if self._idle_since is not None:
            number = bin_of(now - self._idle_since)
            counted.idle[number] = counted.idle.get(number, 0) + 1
            self._idle_since = None
        if self._surge.arrived(now):
            self.surged()

    def executed(self, batch: Batch, now: float, *, idle: bool) -> None:
        """A batch came back; ``idle``: nothing waits or is executed any more."""
        counted = self._counted
        for found in (
            counted.classes.setdefault(batch.instance_class, Executed()),
            counted.instances.setdefault(batch.upstream.name, Executed()),
        ):
            found.batches += 1
            found.seats += batch.seats
            found.exec_s += batch.exec_s
        self._counted.late += sum([now > request.due for request in batch.requests])
        latency = self._counted.latency
        for request in batch.requests:
            number = bin_of(now - request.arrived)
            latency[number] = latency.get(number, 0) + 1
        if idle:
            self._idle_since = now

    def fell_idle(self, now: float) -> None:
        """Note that nothing waits or runs any more: all requests were cancelled or refused."""
        if self._idle_since is None:
            self._idle_since = now

    def idle_s(self, now: float) -> float | None:
        """For how long there has been nothing to do; None while there is something."""
        return None if self._idle_since is None else max(0.0, now - self._idle_since)

    def take(self, now: float) -> Taken:
        """What was counted since the last time."""
        taken, self._counted = self._counted, Taken()
        taken.period_s, self._since = max(0.0, now - self._since), now
        taken.surging = self._surge.told(now)
        return taken
