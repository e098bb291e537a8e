"""Collects what the sidecars of one function report about its load and instances.

Reports of fronts and announcements of instances go in; sums over all of them come out, each for a
point in time. A sidecar that has been silent for a while does not count; an instance that a front
still reaches does, whether it announces itself or not.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from scaler.control.desired_replicas import ClassInstances

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from carpool.sync import Announcement, ClassReport, FrontReport
    from scaler.control.measured_rates import Rates

__all__ = ["SidecarReports"]

_SILENT_S = 5.0
_SILENT_INTERVALS = 3.0


@dataclass(slots=True)
class _Front:
    report: FrontReport
    heard_s: float


@dataclass(slots=True)
class _Instance:
    name: str
    sender: str
    state: str
    heard_s: float
    since_s: float
    load_s: float = 0.0
    reason: str = ""


class SidecarReports:
    """State reported by the sidecars of one function.

    Attributes:
        rates: Arrivals by application.
        interval_s: Reporting interval that sidecars were told; silence for several times as long is
            a fault.
        outcomes: Requests by outcome, since the start.
        arrivals: Requests by application, since the start.
        batches: Batches by class, since the start.
        item_count: Items in them by class.
        latency: Times from arrival to response, since the start.
        exec_s: Execution time of batches by class, since the start.
        starts: Number of instances that have become ready.
        waits: How often a request had to wait as there was no instance at all.
        lines: Known execution times by class.
        surged_s: When a front last reported a surge in arrivals.
    """

    def __init__(self, rates: Rates) -> None:
        self.rates = rates
        self.interval_s = 1.0
        self.outcomes: Counter[str] = Counter()
        self.arrivals: Counter[str] = Counter()
        self.batches: Counter[str] = Counter()
        self.item_count: Counter[str] = Counter()
        self.exec_s: defaultdict[str, float] = defaultdict(float)
        self.latency: Counter[int] = Counter()
        self.starts = 0
        self.waits = 0
        self.lines: dict[str, tuple[float, float]] = {}
        self.surged_s = -math.inf
        self._fronts: dict[str, _Front] = {}
        self._instances: dict[str, _Instance] = {}
        self._ready: tuple[float, dict[str, tuple[str, ...]]] = (-math.inf, {})
        self._load_s = 0.0

    def reported(self, report: FrontReport, now_s: float) -> None:
        """Process the report of a front."""
        self._ready = (-math.inf, {})
        before = self._fronts.get(report.sender)
        self.waits += report.starving and not (before and before.report.starving)
        self._fronts[report.sender] = _Front(report, now_s)
        self.surged_s = now_s if report.surging else self.surged_s
        counts = {app.name: app.arrivals for app in report.apps}
        self.rates.note(counts, report.period_s, now_s)
        self.arrivals.update(counts)
        self.outcomes.update(report.outcomes)
        self.latency.update(report.latency)
        for line in report.classes:
            self._executed(line)

    def announced(self, announcement: Announcement, now_s: float) -> bool:
        """Process the announcement of an instance, and return whether it is news.

        A new instance at a known address replaces the old one.
        """
        self._ready = (-math.inf, {})
        before = self._instances.get(announcement.address)
        same = (
            before is not None
            and before.sender == announcement.sender
            and before.state == announcement.state
        )
        since_s = before.since_s if before is not None and same else now_s
        senders = ("", announcement.sender)  # "": restored from the store
        known = before is not None and before.sender in senders
        self.starts += announcement.state == "ready" and not (
            known and before and before.state == "ready"
        )
        self._instances[announcement.address] = _Instance(
            announcement.name,
            announcement.sender,
            announcement.state,
            now_s,
            since_s,
            announcement.load_s,
            announcement.reason,
        )
        return not same

    def ready(self, now_s: float) -> dict[str, tuple[str, ...]]:
        """Return the addresses of instances that can take batches, by class."""
        if self._ready[0] == now_s:
            return self._ready[1]
        by_class: defaultdict[str, list[str]] = defaultdict(list)
        reached = self._reached(now_s)
        since_s = now_s - self.silent_s
        for address, instance in sorted(self._instances.items()):
            if instance.state == "ready" and (instance.heard_s > since_s or address in reached):
                by_class[instance.name].append(address)
        self._ready = (now_s, {name: tuple(addresses) for name, addresses in by_class.items()})
        return self._ready[1]

    def present(self, now_s: float, deployed: Mapping[str, int]) -> dict[str, ClassInstances]:
        """Return the instances by class; deployed ones that are not ready count as loading."""
        idle: defaultdict[str, list[float]] = defaultdict(list)
        used = self._idle_s(now_s)
        for name, addresses in self.ready(now_s).items():
            for address in addresses:
                since_s = now_s - self._instances[address].since_s
                idle[name].append(min(used.get(address, since_s), since_s))
        return {
            name: ClassInstances(tuple(idle[name]), max(0, deployed.get(name, 0) - len(idle[name])))
            for name in {*idle, *deployed}
        }

    def forget(self, now_s: float) -> None:
        """Drop sidecars that have left, or have been silent for too long."""
        lost_s = now_s - 10 * self.silent_s
        self._fronts = {s: f for s, f in self._fronts.items() if f.heard_s > lost_s}
        reached = self._reached(now_s)
        self._instances = {
            address: instance
            for address, instance in self._instances.items()
            if address in reached
            or instance.heard_s > (now_s - self.silent_s if instance.state == "leaving" else lost_s)
        }

    @property
    def silent_s(self) -> float:
        """Seconds without a report after which a sidecar does not count."""
        return max(_SILENT_S, _SILENT_INTERVALS * self.interval_s)

    def __len__(self) -> int:
        return len(self._fronts) + len(self._instances)

    def rates_rps(self, now_s: float) -> dict[str, float]:
        """Return requests per second by application; NaN if no front has reported for long."""
        return self.rates.at(now_s, self.silent_s)

    def demanded_rps(self, now_s: float) -> dict[str, float]:
        """Return `rates_rps`, but no less than the least rate for applications that are stranded.

        Without this, the demand of a request that waits for an instance would be forgotten while
        the instance loads.
        """
        rates = self.rates_rps(now_s)
        for app in {app for front in self._live(now_s) for app in front.report.stranded}:
            rates[app] = max(rates.get(app, 0.0), self.rates.least_rps)
        return rates

    def fronts(self, now_s: float) -> int:
        """Return the number of fronts."""
        return sum(1 for _ in self._live(now_s))

    def queued(self, now_s: float) -> int:
        """Return the number of waiting requests."""
        return sum(front.report.queued for front in self._live(now_s))

    def starving(self, now_s: float) -> bool:
        """Return whether a request waits at a front that reaches no instance."""
        return any(front.report.starving for front in self._live(now_s))

    def idle_s(self, now_s: float) -> float | None:
        """Return the seconds that all fronts have been idle; None if one is busy."""
        idle = []
        for front in self._live(now_s):
            if front.report.idle_s is None:
                return None
            idle.append(front.report.idle_s + now_s - front.heard_s)
        return min(idle, default=None)

    def idle_beside_s(self, sender: str, now_s: float) -> float | None:
        """Return the seconds that all other fronts have been idle; None if one is busy."""
        idle_s = math.inf
        for front in self._live(now_s):
            if front.report.sender != sender:
                if front.report.idle_s is None:
                    return None
                idle_s = min(idle_s, front.report.idle_s + now_s - front.heard_s)
        return idle_s

    def follows(self, term: int, version: int, now_s: float) -> bool:
        """Return whether every front follows this plan or a newer one."""
        reports = [front.report for front in self._live(now_s)]
        return all(
            report.version is not None and (report.term, report.version) >= (term, version)
            for report in reports
        )

    def term(self) -> int:
        """Return the highest term of a plan that a front has reported; 0 without fronts."""
        return max((front.report.term for front in self._fronts.values()), default=0)

    def load_s(self) -> float:
        """Return the median loading time of the known instances, or the last one known."""
        times = [i.load_s for i in self._instances.values() if i.state != "loading"]
        if times:
            self._load_s = median(times)
        return self._load_s

    def reasons(self) -> list[str]:
        """Return the reasons that instances give for not being ready."""
        return sorted({i.reason for i in self._instances.values() if i.reason})

    def to_dict(self) -> dict[str, Any]:
        """Return the instances and execution times, for `absorb`."""
        ready = {a: i.name for a, i in self._instances.items() if i.state == "ready"}
        return {"ready": ready, "lines": {name: list(line) for name, line in self.lines.items()}}

    def absorb(self, data: dict[str, Any], now_s: float) -> None:
        """Treat the instances from before a restart as ready until they report."""
        for address, name in data.get("ready", {}).items():
            self._instances.setdefault(address, _Instance(name, "", "ready", now_s, now_s))
        for name, (base_s, per_item_s) in data.get("lines", {}).items():
            self.lines.setdefault(name, (base_s, per_item_s))

    def _executed(self, line: ClassReport) -> None:
        self.batches[line.name] += line.batches
        self.item_count[line.name] += line.item_count
        self.exec_s[line.name] += line.exec_s
        if line.base_s or line.per_item_s:
            self.lines[line.name] = (line.base_s, line.per_item_s)

    def _live(self, now_s: float) -> Iterator[_Front]:
        since_s = now_s - self.silent_s
        return (front for front in self._fronts.values() if front.heard_s > since_s)

    def _reached(self, now_s: float) -> set[str]:
        """Return the addresses that a front reaches."""
        fronts = self._live(now_s)
        return {i.address for front in fronts for i in front.report.instances if i.up}

    def _idle_s(self, now_s: float) -> dict[str, float]:
        """Return the seconds since each address last had a batch of any front."""
        idle: dict[str, float] = {}
        for front in self._live(now_s):
            for instance in front.report.instances:
                idle_s = 0.0 if instance.in_flight else instance.idle_s + now_s - front.heard_s
                idle[instance.address] = min(idle_s, idle.get(instance.address, idle_s))
        return idle
