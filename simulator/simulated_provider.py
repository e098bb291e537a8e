"""What an OpenFaaS provider does with the scaler's actions, in simulated time.

Theory of operation
-------------------
Each class of a plan is a function, and its replicas are the instances. A request for replicas is
accepted or, if it exceeds the capacity, refused as a whole, as Carpool's provider does. Instances
are placed by best fit and load; one whose place is still held by a draining instance waits for it.
Of surplus instances those that are loading stop first, then the youngest. An instance that must
stop announces it, serves until the fronts know, releases its resources and is gone. A class whose
deployment changes has one extra instance while new ones replace old ones; if there is no capacity
for it, an old one stops first. The number of instances is the controller's decision.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scaler.control.class_function import FUNCTION_LABEL, MADE_FROM_LABEL, Status
from simulator.cluster_capacity import ReservedPlaces
from simulator.simulated_instance import Phase, SimulatedInstance

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.plan import InstanceClass
    from scaler.control.action import Action
    from simulator.cluster_capacity import ClusterCapacity
    from simulator.event_queue import EventQueue
    from simulator.function_run import FunctionRun

__all__ = ["Replicas", "SimulatedProvider"]

_LONGEST_S = 5.0  # longest time to stop an instance
_SURGE = 1  # additional instances of a class while new ones replace old ones


class SimulatedProvider:
    """Runs the instances of all functions.

    Args:
        events: The clock, and when instances will have loaded.
        capacity: Placement of the instances.

    Attributes:
        dry: As in `Platform`.
        warm: Whether instances are ready immediately, as in a system that has been running.
    """

    def __init__(self, events: EventQueue, capacity: ClusterCapacity) -> None:
        self._events = events
        self._capacity = capacity
        self._called: dict[str, Status] = {}
        self._runs: dict[str, FunctionRun] = {}
        self._classes: dict[str, Replicas] = {}
        self.dry = False
        self.warm = False

    def declare(self, function: Status) -> None:
        """Deploy ``function`` as a user would."""
        self._called[function.name] = function

    def run(self, runs: Sequence[FunctionRun]) -> None:
        """Set the runs of the functions."""
        self._runs = {run.function.name: run for run in runs}

    def functions(self) -> dict[str, Status]:
        """Return all functions by name, as a gateway lists them."""
        return {
            **self._called,
            **{name: replicas.status() for name, replicas in self._classes.items()},
        }

    def carry_out(self, action: Action) -> None:
        """Carry out an action of a controller.

        Raises:
            ProviderError: there is no capacity for it; nothing is changed.
            ConfigError: a class whose latency is not known.
        """
        name, document, now = action.name, action.document, self._events.now_s
        if action.verb == "deploy":
            run = self._runs[_owner(document)]
            instance_class = _class_of(action, run)
            self._classes[name] = Replicas(
                run, self._events, self._capacity, instance_class, document
            )
        elif action.verb == "update":
            instance_class = _class_of(action, self._runs[_owner(document)])
            self._classes[name].update(instance_class, document, now)
        else:
            self._classes[name].scale(action.replicas, now, loaded=self.warm)
        if action.verb == "delete":
            del self._classes[name]


class Replicas:
    """The instances of one class.

    Args:
        run: The function.
        events: Schedules the end of loading.
        capacity: Placement of the instances.
        instance_class: The class.
        document: The deployed document.
    """

    def __init__(
        self,
        run: FunctionRun,
        events: EventQueue,
        capacity: ClusterCapacity,
        instance_class: InstanceClass,
        document: Mapping[str, object],
    ) -> None:
        self._run = run
        self._events = events
        self._capacity = capacity
        self._instances: list[SimulatedInstance] = []
        self._wanted = 0
        self._reservation = ReservedPlaces()
        self._deploy(instance_class, document)

    def status(self) -> Status:
        """Return the status as a gateway lists it."""
        ready = [i for i in self._instances if i.phase is Phase.READY]
        return Status(self._name, self._wanted, len(ready), self._document)

    def update(
        self, instance_class: InstanceClass, document: Mapping[str, object], now: float
    ) -> None:
        """Switch to another class; old instances serve until new ones are ready.

        Raises:
            ProviderError: there is no capacity for as many instances of it; nothing is changed.
        """
        size = self._run.executions.of(replace(instance_class, replicas=0)).size
        self._capacity.reserve(self._reservation, size, self._wanted)
        self._deploy(instance_class, document)
        self.settle(now)

    def scale(self, wanted: int, now: float, *, loaded: bool = False) -> None:
        """Set the number of replicas; ``loaded`` makes new ones ready immediately.

        Raises:
            ProviderError: there is no capacity for that many; nothing is changed.
        """
        self._capacity.reserve(self._reservation, self._execution.size, wanted)
        self._wanted = wanted
        self.settle(now, loaded=loaded)

    def settle(self, now: float, *, loaded: bool = False) -> None:
        """Start missing instances where there is capacity, and drain surplus ones."""
        staying = [i for i in self._instances if i.phase in (Phase.READY, Phase.LOADING)]
        staying.sort(key=lambda i: i.phase is not Phase.READY)
        new = [i for i in staying if i.revision == self._revision]
        old = [i for i in staying if i.revision != self._revision]
        cramped = bool(old) and len(staying) <= self._wanted and self._crowded()
        kept = max(0, self._wanted - sum(i.phase is Phase.READY for i in new) - cramped)
        most = self._wanted + (_SURGE if old and not cramped else 0)
        for instance in (*new[self._wanted :], *old[kept:]):
            self._retire(instance, now)
        for _ in range(min(self._wanted, most - len(old[:kept])) - len(new)):
            if not self._start(now, loaded=loaded):
                break

    def drained(self, instance: SimulatedInstance, now: float) -> None:
        """Remove an ``instance`` that has released its resources."""
        instance.phase = Phase.GONE
        self._instances.remove(instance)
        self._run.gone(instance, now)
        self._capacity.give_back(instance.place)
        self._events.at(now, self._capacity.released)

    def _deploy(self, instance_class: InstanceClass, document: Mapping[str, object]) -> None:
        self._instance_class = replace(instance_class, replicas=0)
        self._execution = self._run.executions.of(instance_class)
        self._document = document
        self._name = str(document["service"])
        self._revision = self.status().labels[MADE_FROM_LABEL]

    def _crowded(self) -> bool:
        return not self._capacity.fits(self._execution.size)

    def _start(self, now: float, *, loaded: bool) -> bool:
        """Place and load one more instance; return whether it fits."""
        there, place = self._capacity.take(self._execution.size)
        if not there:
            self._capacity.wait(self.settle)
            return False
        name = self._run.next_address()
        instance = SimulatedInstance(
            name, self._instance_class, self._revision, self._execution, place, now
        )
        instance.drained = self.drained
        self._instances.append(instance)
        self._run.started(instance)
        self._capacity.loads(place, 1)
        if loaded:
            self.loaded(now, instance)
        else:
            self._events.at(now + self._execution.load_s, self.loaded, instance)
        return True

    def loaded(self, now: float, instance: SimulatedInstance) -> None:
        """Mark an instance as loaded, unless it is gone."""
        if instance.phase is not Phase.LOADING:
            return
        self._capacity.loads(instance.place, -1)
        instance.phase = Phase.READY
        instance.ready = instance.used = now
        self._run.announce(instance, "ready")
        if any(each.revision != self._revision for each in self._instances):
            self.settle(now)  # one of the old ones may go

    def _retire(self, instance: SimulatedInstance, now: float) -> None:
        if instance.phase is Phase.LOADING:
            self._capacity.loads(instance.place, -1)
            self.drained(instance, now)
            return
        instance.phase = Phase.LEAVING
        self._run.announce(instance, "leaving")
        known_s = min(2 * self._run.interval_s(), _LONGEST_S)
        self._events.at(now + known_s, self._drain, instance)

    def _drain(self, now: float, instance: SimulatedInstance) -> None:
        """Stop sending batches to ``instance``, as the fronts now know that it is leaving."""
        instance.phase = Phase.DRAINING
        self._run.sidecar.leave(instance)
        if not instance.upstream.in_flight:
            self.drained(instance, now)


def _owner(document: Mapping[str, object]) -> str:
    labels = document["labels"]
    assert isinstance(labels, dict)  # noqa: S101  it is a class's deployment
    return str(labels[FUNCTION_LABEL])


def _class_of(action: Action, run: FunctionRun) -> InstanceClass:
    """Return the plan's own class, as numbers in a document are rounded."""
    plan = run.controller.plan
    assert plan is not None  # noqa: S101  what is deployed is a class of it
    return next(each for each in plan.classes if each.name == action.class_name)
