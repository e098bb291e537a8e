"""Counts a sidecar's load for the scaler: arrivals, idle times, executions.

Counting happens on the request path, so it is plain additions; `take` starts a new sample.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from carpool.log_histogram import Spread, bin_of
from sidecar.core.surge import SurgeDetector

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.core.batch import Batch

__all__ = ["AppLoad", "Executions", "Load", "LoadSample"]


@dataclass(slots=True)
class AppLoad:
    """Number of requests of an application, and the times between them."""

    arrivals: int = 0
    gaps: Spread = field(default_factory=dict)


@dataclass(slots=True)
class Executions:
    """Batches that came back from one instance, or from all of a class."""

    batches: int = 0
    item_count: int = 0
    exec_s: float = 0.0


@dataclass(slots=True)
class LoadSample:
    """Load counted between two reports.

    Attributes:
        period_s: Length of that time.
        surging: Whether more requests came than earlier reports suggest.
        apps: Arrivals by application.
        classes: Executions by class of instances.
        instances: Executions by instance.
        idle: Idle times, each until the next request.
        late: Number of responses that came after they were due.
        latency: Times from arrival to response.
    """

    period_s: float = 0.0
    surging: bool = False
    apps: dict[str, AppLoad] = field(default_factory=dict)
    classes: dict[str, Executions] = field(default_factory=dict)
    instances: dict[str, Executions] = field(default_factory=dict)
    idle: Spread = field(default_factory=dict)
    late: int = 0
    latency: Spread = field(default_factory=dict)


class Load:
    """Counts the load.

    Args:
        now: Seconds, on the same axis as requests.

    Attributes:
        on_surge: Called when a surge of requests should be reported at once.
    """

    __slots__ = ("_idle_since", "_last_arrival", "_sample", "_since", "_surge", "on_surge")

    def __init__(self, now: float) -> None:
        self._since = now
        self._sample = LoadSample()
        self._last_arrival: dict[str, float] = {}
        self._idle_since: float | None = now
        self._surge = SurgeDetector(now)
        self.on_surge: Callable[[], None] = lambda: None

    def arrived(self, app: str, now: float) -> None:
        """Count a request."""
        sample = self._sample
        load = sample.apps.get(app)
        if load is None:
            load = sample.apps[app] = AppLoad()
        load.arrivals += 1
        last = self._last_arrival.get(app)
        self._last_arrival[app] = now
        if last is not None:
            number = bin_of(now - last)
            load.gaps[number] = load.gaps.get(number, 0) + 1
        if self._idle_since is not None:
            number = bin_of(now - self._idle_since)
            sample.idle[number] = sample.idle.get(number, 0) + 1
            self._idle_since = None
        if self._surge.arrived(now):
            self.on_surge()

    def executed(self, batch: Batch, now: float, *, idle: bool) -> None:
        """Count a batch that came back; ``idle`` if nothing waits or is in flight any more."""
        sample = self._sample
        for executions in (
            sample.classes.setdefault(batch.instance_class, Executions()),
            sample.instances.setdefault(batch.upstream.name, Executions()),
        ):
            executions.batches += 1
            executions.item_count += batch.item_count
            executions.exec_s += batch.exec_s
        sample.late += sum([now > request.due for request in batch.requests])
        latency = sample.latency
        for request in batch.requests:
            number = bin_of(now - request.arrived)
            latency[number] = latency.get(number, 0) + 1
        if idle:
            self._idle_since = now

    def became_idle(self, now: float) -> None:
        """Note that nothing waits or runs any more, as all requests were cancelled or refused."""
        if self._idle_since is None:
            self._idle_since = now

    def idle_s(self, now: float) -> float | None:
        """Return the seconds of idle time so far; None while requests wait or run."""
        return None if self._idle_since is None else max(0.0, now - self._idle_since)

    def take(self, now: float) -> LoadSample:
        """Return the load counted since the last call, and start a new sample."""
        sample, self._sample = self._sample, LoadSample()
        sample.period_s, self._since = max(0.0, now - self._since), now
        sample.surging = self._surge.reported(now)
        return sample
