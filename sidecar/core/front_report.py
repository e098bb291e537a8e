"""Makes the reports of a function's front to the scaler, live and simulated.

Times are rounded to microseconds, as each digit makes the messages longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from carpool.sync import COUNT_MAX, AppReport, ClassReport, FrontReport, InstanceReport
from sidecar.core.load_counter import APPS_MAX, Executions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from carpool.plan import Plan
    from sidecar.core.batcher import Batcher
    from sidecar.core.dispatch import Upstream
    from sidecar.core.load_counter import LoadCounter

__all__ = ["FrontReports", "ReportedInstance", "starves"]

_DIGITS = 6


class ReportedInstance(Protocol):
    """An instance that the front sends batches to."""

    @property
    def upstream(self) -> Upstream:
        """The instance as the batcher sees it."""

    @property
    def streams(self) -> int:
        """Number of streams that it holds."""

    def idle_s(self, now: float) -> float:
        """Return the seconds since it last gave a batch back."""


class FrontReports:
    """Makes the reports of one front.

    Args:
        function: Name by which users call the function.
        load: Counts arrivals and executions.
        batcher: Holds the waiting requests.

    Attributes:
        revision: Revision of the last answer with a plan; empty before the first.
    """

    def __init__(self, function: str, load: LoadCounter, batcher: Batcher) -> None:
        self._function = function
        self._load = load
        self._batcher = batcher
        self.revision = ""

    def report(
        self,
        sender: str,
        sequence: int,
        now: float,
        plan: Plan | None,
        instances: Sequence[ReportedInstance],
        outcomes: Mapping[str, int],
    ) -> FrontReport:
        """Return the next report, and start new counts.

        Args:
            sender: Identifier of the front.
            sequence: Number of the message.
            now: Seconds, on the axis of the load.
            plan: The plan in force, if there is one.
            instances: The instances under that plan.
            outcomes: Requests by outcome since the last report.
        """
        load, batcher = self._load, self._batcher
        if batcher.idle and not any(instance.streams for instance in instances):
            load.became_idle(now)
        sample = load.take(now)
        late = {"late": sample.late} if sample.late else {}
        return FrontReport(
            self._function,
            sender,
            sequence,
            self.revision,
            plan.version if plan else None,
            round(sample.period_s, _DIGITS),
            load.idle_s(now),
            batcher.queued,
            starves(batcher, instances),
            tuple([AppReport(name, _stated(count)) for name, count in sample.arrivals.items()]),
            tuple(_classes(sample.executed, instances)),
            tuple([_seen(each, sample.executed, now) for each in instances]),
            sample.idle,
            {how: _stated(count) for how, count in outcomes.items()} | late,
            sample.latency,
            sample.surging,
            plan.term if plan else 0,
            tuple(sorted(batcher.stranded)[:APPS_MAX]),
        )


def _stated(count: int) -> int:
    """Return a count as reported; a provider may state any number of calls that it refused."""
    return min(count, COUNT_MAX)


def starves(batcher: Batcher, instances: Iterable[ReportedInstance]) -> bool:
    """Return whether requests wait and no instance can be reached."""
    return batcher.queued > 0 and not any(instance.upstream.up for instance in instances)


def _classes(
    executed: Mapping[str, Mapping[str, Executions]], instances: Iterable[ReportedInstance]
) -> Iterator[ClassReport]:
    upstreams = [instance.upstream for instance in instances]
    exec_times = {upstream.instance_class: upstream.exec_time for upstream in upstreams}
    for name, of_class in executed.items():
        total, times = _total(of_class.values()), exec_times.get(name)
        base_s, per_item_s = times.line() if times and times.settled else (0.0, 0.0)
        yield ClassReport(
            name,
            total.batches,
            total.item_count,
            round(total.exec_s, _DIGITS),
            round(base_s, _DIGITS),
            round(per_item_s, _DIGITS),
        )


def _seen(
    instance: ReportedInstance, executed: Mapping[str, Mapping[str, Executions]], now: float
) -> InstanceReport:
    upstream = instance.upstream
    name = upstream.name
    total = _total([of_class[name] for of_class in executed.values() if name in of_class])
    return InstanceReport(
        name,
        upstream.instance_class,
        upstream.up,
        upstream.in_flight + instance.streams,
        round(instance.idle_s(now), _DIGITS),
        total.batches,
        total.item_count,
        round(total.exec_s, _DIGITS),
    )


def _total(parts: Iterable[Executions]) -> Executions:
    total = Executions()
    for each in parts:
        total.batches += each.batches
        total.item_count += each.item_count
        total.exec_s += each.exec_s
    return total
