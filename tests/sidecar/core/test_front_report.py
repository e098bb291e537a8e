"""Reports of a function's front to the scaler."""

from __future__ import annotations

import pytest

from carpool.plan import InstanceClass, Plan, Route
from carpool.sync import COUNT_MAX, AppReport, FrontReport, InstanceReport, read_message
from sidecar.core import dispatch
from sidecar.core.batcher import Batcher
from sidecar.core.dispatch import Upstream
from sidecar.core.front_report import FrontReports
from sidecar.core.load_counter import LoadCounter
from sidecar.core.request import Request
from sidecar.policies.deadline import Deadline

PLAN = Plan(
    "f", 7, "test", (InstanceClass("small", 1.0, 2, 2),), (Route("*", {"small": 1.0}, 0.0),), term=3
)


class Instance:
    """Instance without streams."""

    streams = 0

    def __init__(self, name: str, instance_class: str = "small") -> None:
        self.upstream = Upstream(name, 2, instance_class, up=True)

    def idle_s(self, now: float) -> float:
        """Return the seconds since it gave a batch back."""
        return now - self.upstream.last_returned


class Front:
    """A batcher with two instances, and its reports."""

    def __init__(self) -> None:
        self.load = LoadCounter(0.0)
        self.batcher = Batcher(Deadline(Deadline.Params()), batch_max=2, queue_max=2)
        self.reports = FrontReports("f", self.load, self.batcher)
        self.instances = [Instance("a"), Instance("b")]
        for instance in self.instances:
            self.batcher.upstreams.add(instance.upstream)

    def arrive(self, count: int, now: float) -> None:
        """Receive requests of the application `web`."""
        for number in range(count):
            self.load.arrived("web", now)
            self.batcher.admit(Request(number, "k", now, app="web"), now)

    def serve(self, now: float, exec_s: float) -> None:
        """Execute what waits."""
        for batch in self.batcher.step(now).send:
            self.batcher.finished(batch, [False] * len(batch.requests), now + exec_s)
            self.load.executed(batch, now + exec_s, idle=self.batcher.idle)

    def report(self, now: float) -> FrontReport:
        """Return the report at a time."""
        return self.reports.report("a" * 8, 1, now, PLAN, self.instances, outcomes={})


def test_a_batch_counts_for_its_class_after_its_instance_has_left() -> None:
    """A report has the batches of all instances by class, and of the present ones by instance."""
    front = Front()
    front.arrive(2, 1.0)
    front.serve(1.0, 0.25)
    front.arrive(1, 2.0)
    front.serve(2.0, 0.25)
    front.instances = front.instances[1:]
    report = front.report(4.0)
    (small,) = report.classes
    assert (2, 3) == (small.batches, small.item_count)
    assert pytest.approx(0.5) == small.exec_s
    assert (InstanceReport("b", "small", True, 0, 1.75, 1, 1, 0.25),) == report.instances  # noqa: FBT003
    assert (AppReport("web", 3),) == report.apps
    assert (4.0, 7, 3) == (report.period_s, report.version, report.term)
    assert () == front.report(5.0).classes


def test_a_front_that_refuses_its_only_request_is_idle_again() -> None:
    """The time after a refused request is idle from the next report on."""
    front = Front()
    front.load.arrived("web", 1.0)
    assert 0.0 == front.report(2.0).idle_s
    assert 1.5 == front.report(3.5).idle_s


def test_a_front_starves_while_requests_wait_and_no_instance_is_reachable() -> None:
    """Waiting requests without a reachable instance are reported, and both with one are not."""
    front = Front()
    front.arrive(1, 1.0)
    assert not front.report(1.0).starving
    for instance in front.instances:
        instance.upstream.up = False
    report = front.report(2.0)
    assert (True, 1, None) == (report.starving, report.queued, report.idle_s)


def test_applications_without_a_reachable_instance_are_reported_while_requests_wait() -> None:
    """Only the application is reported whose planned instances cannot be reached."""
    front = Front()
    routes = {"lax": dispatch.Route({"small": 1.0}), "exact": dispatch.Route({"wide": 1.0})}
    upstreams = [instance.upstream for instance in front.instances]
    front.batcher.replan(Deadline(Deadline.Params()), routes, upstreams)
    for number, app in enumerate(("lax", "exact")):
        request = Request(number, "k", 1.0, app=app)
        request.counted_as = app
        front.batcher.admit(request, 1.0)
    assert ("exact",) == front.report(2.0).stranded
    wider = Instance("c", "wide")
    front.batcher.upstreams.add(wider.upstream)
    assert () == front.report(3.0).stranded


def test_counts_are_reported_up_to_the_largest_that_the_scaler_reads() -> None:
    """A provider may state any number of calls that it refused."""
    front = Front()
    front.load.add("*", 3 * COUNT_MAX)
    outcomes = {"refused": 3 * COUNT_MAX}
    report = front.reports.report("a" * 8, 1, 1.0, PLAN, [], outcomes)
    read = read_message(report.to_json())
    assert isinstance(read, FrontReport)
    assert ([COUNT_MAX], {"refused": COUNT_MAX}) == ([a.arrivals for a in read.apps], read.outcomes)
