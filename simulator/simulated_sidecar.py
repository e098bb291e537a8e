"""A simulated sidecar: the real batcher, and instances that execute in simulated time.

A simulated sidecar can skip an interval: waiting requests and running batches continue as if it had
not happened. It therefore has its own time, which is behind the event queue's by everything it has
skipped.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sidecar.core.admission.shedding import Shedding
from sidecar.core.batcher import Batcher
from sidecar.core.cold_start import ColdStart
from sidecar.policies.planned import Planned, policy_of, routes_of
from simulator.many_upstreams import ManyUpstreams
from simulator.outcomes import Outcomes
from simulator.simulated_instance import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from carpool.plan import Plan
    from scaler.scenarios.scenario import App
    from sidecar.core.batch import Batch
    from sidecar.core.load_counter import LoadCounter
    from sidecar.core.request import Request
    from simulator.event_queue import EventQueue
    from simulator.simulated_instance import SimulatedInstance

__all__ = ["SimulatedSidecar"]

_ROUNDING_S = 1e-9  # tolerance within which a response is not late


class SimulatedSidecar:
    """The queue of one function and the execution of its batches.

    Args:
        apps: Applications that call the function.
        instances: Its instances, by address.
        events: Schedules the end of batches.
        queue_max: Most requests waiting.
        load: Counts requests and batches for the scaler; its time is the event queue's.
        network_s: Time of each response beyond its execution.

    Attributes:
        load: As given.
        urgent: Called when the scaler should learn of the current requests.
        slowed: Relative slowdown of an instance's executions; None for no slowdown.
        outcomes: Outcomes of requests; the reader may replace it.
        requests: Number of requests.
        waiting: Number of waiting requests.
        free: Number of idle instances.
        least: Smallest full batch of any instance; 0 without instances.
        wakes_at: Time of the next step if nothing happens before, in its own time.
        skipped_s: How far its own time is behind.
    """

    def __init__(
        self,
        apps: Sequence[App],
        instances: Mapping[str, SimulatedInstance],
        events: EventQueue,
        queue_max: float,
        load: LoadCounter,
        network_s: float,
    ) -> None:
        nothing = Planned(Planned.Params({}))
        self._upstreams = ManyUpstreams()
        self.batcher = Batcher(
            nothing,
            batch_max=2**31,  # each instance's own is less
            queue_max=queue_max,  # type: ignore[arg-type]  # infinity compares like a number
            shedding=Shedding("on"),  # as of functions with an objective
            upstreams=self._upstreams,
        )
        self._instances = instances
        self.cold_start = ColdStart(self.batcher, self._upstreams, lambda _: math.inf)
        self._events = events
        self.load = load
        self.urgent: Callable[[float], None] = lambda _: None
        self._network_s = network_s
        self.slowed: Callable[[SimulatedInstance], float] | None = None
        self._tightest_s = min(app.slo_s for app in apps)
        self._no_failures: dict[int, list[bool]] = {}
        self.least = self._largest = 0
        self._single = 0
        self._futile = False
        self.wakes_at = math.inf
        self.skipped_s = 0.0
        self.requests = 0
        self.outcomes = Outcomes()
        self.waiting = 0
        self.free = 0

    def replan(self, plan: Plan, instances: Sequence[SimulatedInstance], now: float) -> None:
        """Switch to ``plan`` without losing requests.

        Requests that wait while no instance is free are counted as waiting for the new instances to
        load.
        """
        own = now - self.skipped_s
        held_up = self.waiting > 0 and not self.free
        for instance in instances:
            if held_up and not instance.serving:
                instance.cold_before = own
        for instance in self._instances.values():
            instance.serving = False
        for instance in instances:
            instance.serving = True
        upstreams = [instance.upstream for instance in instances]
        self.batcher.replan(policy_of(plan), routes_of(plan), upstreams, plan.version)
        self._changed()
        self.step(own)

    def leave(self, instance: SimulatedInstance) -> None:
        """Stop sending to an instance, if it was used; its running batches still return."""
        if instance.serving:
            instance.serving = False
            gone = instance.upstream
            self.batcher.upstreams.keep({u for u in self.batcher.upstreams if u is not gone})
            self.batcher.changed()
            self._changed()

    def conditions_changed(self, now: float) -> None:
        """Apply changed conditions (overload, interference) of instances."""
        self._upstreams.keep(list(self._upstreams))
        self.batcher.changed()
        self._changed()
        self.step(now - self.skipped_s)

    def skip(self, by_s: float) -> None:
        """Skip an interval of ``by_s`` whose requests are accounted for elsewhere."""
        self.skipped_s += by_s
        self.load.skip(by_s)
        self._events.postpone(self, by_s)

    def step(self, now: float) -> None:
        """Send every batch that may leave at ``now`` (own time), and schedule the next step."""
        actions = self.batcher.step(now)
        for batch in actions.send:
            self._launch(batch, now)
        if actions.expired:
            expired = len(actions.expired)
            self.waiting -= expired
            self.outcomes.expired += expired
            for request in actions.expired:
                self.outcomes.miss(request.app)
            if not self.least:  # no instance could have taken them
                self.outcomes.cold += expired
            if self.batcher.idle:
                self.load.became_idle(now + self.skipped_s)
        if self.waiting:
            self._futile = not self.free and not actions.send and self.waiting >= self._largest
            due = self.batcher.wake_at(now)
            if due < self.wakes_at:
                self.wake(due)

    def may_leave_queued(self, now: float) -> bool:
        """Return whether a batch may leave for a queue although no instance is free."""
        if not self.least:
            self.urgent(now + self.skipped_s)
        return self._single > 0 and self.waiting >= self.least and not self._futile

    def wake(self, due: float) -> None:
        """Schedule a step at ``due``, in its own time."""
        self.wakes_at = due
        self._events.at(due + self.skipped_s, self._woken, due)

    def _woken(self, now: float, due: float) -> None:
        del now
        if due == self.wakes_at:
            self.wakes_at = math.inf
            if self.waiting:
                self.step(due)

    def _launch(self, batch: Batch, now: float) -> None:
        instance = self._instances[batch.upstream.name]
        self._upstreams.moved(batch.upstream)
        self.waiting -= len(batch.requests)
        if instance.device:
            self.free -= not batch.upstream.free
            instance.device.take(batch)
            if not instance.device.busy:
                self._run_stage(instance, now)
            return
        if batch.upstream.in_flight == 1:
            self.free -= 1
            self._single += 1
        else:
            self._single -= 1
        exec_s, cost = instance.execution.run(batch.item_count)
        start = max(instance.busy_until, now)
        end = instance.end(start, exec_s)
        if self.slowed:
            end += (end - start) * self.slowed(instance)
        instance.busy_until = end
        if instance.budget or self.slowed:
            exec_s, cost = end - start, instance.execution.cost(end - start)
        self._events.at(end + self.skipped_s, self._land, batch, instance, end, exec_s, cost)

    def _run_stage(self, instance: SimulatedInstance, now: float) -> None:
        assert instance.device is not None  # noqa: S101  the caller has looked
        stage_s = instance.device.begin(now)
        if stage_s is not None:
            instance.busy_until = end = instance.end(now, stage_s)
            self._events.at(end + self.skipped_s, self._stage_ran, instance, end)

    def _stage_ran(self, at_s: float, instance: SimulatedInstance, now: float) -> None:
        device = instance.device
        assert device is not None  # noqa: S101  its stage has run
        for batch, exec_s, cost in device.end():
            self._land(at_s, batch, instance, now, exec_s, cost)
        device.busy = False  # not before: requests that take their places join at this boundary
        self._run_stage(instance, now)

    def _land(
        self,
        at_s: float,
        batch: Batch,
        instance: SimulatedInstance,
        now: float,
        exec_s: float,
        cost: float,
    ) -> None:
        requests = batch.requests
        count = len(requests)
        failed = self._no_failures.get(count)
        if failed is None:
            failed = self._no_failures[count] = [False] * count
        self.batcher.finished(batch, failed, now)
        self._upstreams.moved(batch.upstream)
        outcomes = self.outcomes
        outcomes.cost += cost
        outcomes.busy_core_s += exec_s * instance.execution.size.cpu
        together = instance.device.together if instance.device else count
        outcomes.batches += count / together
        outcomes.sizes[together] = outcomes.sizes.get(together, 0) + count / together
        self._record(requests, instance, now)
        self._futile = False
        self.load.executed(batch, at_s, idle=self.batcher.idle)
        idle = not batch.upstream.in_flight
        if instance.serving and not instance.upstream.interfered:
            if instance.device:
                self.free += batch.upstream.in_flight == batch.upstream.concurrency - 1
            else:
                self.free += idle
                self._single += 1 - 2 * idle
        if self.waiting:
            self.step(now)
        if idle and not batch.upstream.in_flight:
            instance.used = at_s
            if instance.phase is Phase.DRAINING:
                instance.drained(instance, at_s)

    def _record(self, requests: list[Request], instance: SimulatedInstance, now: float) -> None:
        outcomes = self.outcomes
        outcomes.done += len(requests)
        now += self._network_s
        outcomes.fresh_s += [now - request.arrived for request in requests]
        first = requests[0].arrived  # none has waited longer
        if now - first > self._tightest_s:
            latest = now - _ROUNDING_S
            late = [request.app for request in requests if request.due < latest]
            outcomes.late += len(late)
            for app in late:
                outcomes.miss(app)
        if first < instance.cold_before:
            cold = instance.cold_before
            outcomes.cold += sum([request.arrived < cold for request in requests])

    def _changed(self) -> None:
        """Count the instances again."""
        self.cold_start.instances_changed()
        upstreams = [each for each in self.batcher.upstreams if not each.interfered]
        sizes = [1 if each.concurrency > 1 else each.batch_max for each in upstreams]
        self.free = sum(each.free for each in upstreams)
        self._single = sum(each.in_flight == each.concurrency == 1 for each in upstreams)
        self.least, self._largest = min(sizes, default=0), max(sizes, default=0)
        self._futile = False
