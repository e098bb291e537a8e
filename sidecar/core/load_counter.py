"""Counts a sidecar's load for the scaler: arrivals, idle times, executions.

Counting happens on the request path, so it is plain additions; `take` starts a new sample.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from carpool.log_histogram import Spread, bin_of
from sidecar.core.surge import SurgeDetector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sidecar.core.batch import Batch
    from sidecar.core.request import Request

__all__ = ["APPS_MAX", "Executions", "LoadCounter", "LoadSample"]

APPS_MAX = 1024  # most that are counted separately, because callers can keep stating new demands


@dataclass(slots=True)
class Executions:
    """Batches that came back from one instance, or from several."""

    batches: int = 0
    item_count: int = 0
    exec_s: float = 0.0


@dataclass(slots=True)
class LoadSample:
    """Load counted between two reports.

    Attributes:
        period_s: Length of that time.
        surging: Whether more requests came than earlier reports suggest.
        arrivals: Number of requests by application.
        executed: Executions by class of instances, and by instance.
        idle: Idle times, each until the next request.
        late: Number of responses that came after they were due.
        latency: Times from arrival to response.
    """

    period_s: float = 0.0
    surging: bool = False
    arrivals: dict[str, int] = field(default_factory=dict)
    executed: dict[str, dict[str, Executions]] = field(default_factory=dict)
    idle: Spread = field(default_factory=dict)
    late: int = 0
    latency: Spread = field(default_factory=dict)


class LoadCounter:
    """Counts the load.

    Args:
        now: Seconds, on the same axis as requests.
        reported_rps: The rate that the scaler knows already.

    Attributes:
        on_surge: Called with the time when a surge of requests should be reported at once.
    """

    __slots__ = ("_idle_since", "_sample", "_since", "_surge", "on_surge")

    def __init__(self, now: float, reported_rps: float = 0.0) -> None:
        self._since = now
        self._sample = LoadSample()
        self._idle_since: float | None = now
        self._surge = SurgeDetector(now, reported_rps)
        self.on_surge: Callable[[float], None] = lambda _: None

    def arrived(self, app: str, now: float) -> None:
        """Count a request; under ``*`` if there are too many applications to count each."""
        arrivals = self._sample.arrivals
        if len(arrivals) >= APPS_MAX and app not in arrivals:
            app = "*"
        arrivals[app] = arrivals.get(app, 0) + 1
        if self._idle_since is not None:
            idle, number = self._sample.idle, bin_of(now - self._idle_since)
            idle[number] = idle.get(number, 0) + 1
            self._idle_since = None
        if self._surge.arrived(now):
            self.on_surge(now)

    def add(self, app: str, count: int) -> None:
        """Count requests without looking for a surge or an idle time that they end."""
        arrivals = self._sample.arrivals
        arrivals[app] = arrivals.get(app, 0) + count
        self._surge.add(count)

    def executed(self, batch: Batch, now: float, *, idle: bool) -> None:
        """Count a batch that came back; ``idle`` if nothing waits or is in flight any more."""
        of_class = self._sample.executed.setdefault(batch.instance_class, {})
        executions = of_class.get(batch.upstream.name)
        if executions is None:
            executions = of_class[batch.upstream.name] = Executions()
        executions.batches += 1
        executions.item_count += batch.item_count
        executions.exec_s += batch.exec_s
        if idle:
            self._idle_since = now

    def answered(self, requests: Sequence[Request], now: float) -> None:
        """Count the latencies of requests that were executed."""
        self._sample.late += sum([now > request.due for request in requests])
        latency = self._sample.latency
        for request in requests:
            number = bin_of(now - request.arrived)
            latency[number] = latency.get(number, 0) + 1

    def became_idle(self, now: float) -> None:
        """Note that nothing waits or runs any more, as all requests were cancelled or refused."""
        if self._idle_since is None:
            self._idle_since = now

    def idle_s(self, now: float) -> float | None:
        """Return the seconds of idle time so far; None while requests wait or run."""
        return None if self._idle_since is None else max(0.0, now - self._idle_since)

    def skip(self, by_s: float) -> None:
        """Leave out a time that is not idle: an idle time continues after it."""
        if self._idle_since is not None:
            self._idle_since += by_s

    def take(self, now: float) -> LoadSample:
        """Return the load counted since the last call, and start a new sample."""
        sample, self._sample = self._sample, LoadSample()
        sample.period_s, self._since = max(0.0, now - self._since), now
        sample.surging = self._surge.reported(now)
        return sample
