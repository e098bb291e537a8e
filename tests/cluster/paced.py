"""A scenario in simulated time whose instances are pods of a real cluster.

The callers, the sidecars and the scaler's rounds are simulated. Time passes at the pace of the wall
clock, the provider is queried and changed over HTTP, and an instance has loaded when a pod of its
class is reported as ready.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from simulator.event_queue import EventQueue
from simulator.simulated_instance import Phase
from simulator.simulated_provider import Replicas, SimulatedProvider
from simulator.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler.control.action import Action
    from scaler.control.class_function import Status
    from scaler.openfaas_client import GatewayClient
    from scaler.scenarios.scenario import Scenario
    from simulator.cluster_capacity import ClusterCapacity
    from simulator.settings import Settings
    from simulator.simulated_instance import SimulatedInstance

__all__ = ["PacedSimulation"]

_TICK_S = 0.05
_LOOKS = 5  # ticks from one look at what is ready to the next


class _PodQueue(EventQueue):
    """Event queue in which instances have loaded when pods are ready, not after a fixed time.

    Attributes:
        loading: the loading instances of a class, in the order of their start.
    """

    __slots__ = ("loading",)

    def __init__(self) -> None:
        super().__init__()
        self.loading: defaultdict[Replicas, list[SimulatedInstance]] = defaultdict(list)

    def at(self, when_s: float, call: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call, as `EventQueue.at` does."""
        replicas = getattr(call, "__self__", None)
        if isinstance(replicas, Replicas) and call == replicas.loaded:
            self.loading[replicas].extend(arguments)
        else:
            super().at(when_s, call, *arguments)

    def pods_ready(self, replicas: Replicas, count: int) -> None:
        """Mark as many instances of a class as loaded as it has ready pods."""
        waiting = [each for each in self.loading[replicas] if each.phase is Phase.LOADING]
        more = max(0, count - replicas.status().available)
        for instance in waiting[:more]:
            super().at(self.now_s, replicas.loaded, instance)
        self.loading[replicas] = waiting[more:]


class _ClusterProvider(SimulatedProvider):
    """Simulated provider that passes all actions on to a real one.

    Args:
        events: events of the simulation.
        capacity: capacity of the simulation.
        client: client for the real provider.
        image: image of functions.
    """

    def __init__(
        self, events: _PodQueue, capacity: ClusterCapacity, client: GatewayClient, image: str
    ) -> None:
        super().__init__(events, capacity)
        self._client = client
        self._pods = events
        self._image = image

    def declare(self, function: Status) -> None:
        """Record that a user has deployed ``function``."""
        document = {**function.document, "image": self._image}
        super().declare(dataclasses.replace(function, document=document))

    def functions(self) -> dict[str, Status]:
        """Return the functions of the scenario, and those that the provider lists."""
        return {**self._called, **self._client.functions()}

    def carry_out(self, action: Action) -> None:
        """Carry out an action, both in the cluster and in the simulation."""
        self._client.carry_out(action)
        super().carry_out(action)

    def look(self) -> int:
        """Mark the instances of ready pods as loaded, and return the number of ready pods."""
        listed = self._client.functions()
        for name, replicas in self._classes.items():
            if name in listed:
                self._pods.pods_ready(replicas, listed[name].available)
        return sum(status.available for status in listed.values())


class PacedSimulation(Simulation):
    """A single run over the scenario's horizon.

    Args:
        scenario, planner, settings: as for a simulation.
        client: client for a provider that has no functions yet.
        image: image of functions.
        looked: called with the time of each look at the provider.

    Attributes:
        ready: number of pods reported as ready, by time.
        late_s: maximum delay behind the wall clock, in seconds.
    """

    def __init__(
        self,
        scenario: Scenario,
        planner: Any,
        settings: Settings,
        client: GatewayClient,
        image: str,
        looked: Callable[[float], object],
    ) -> None:
        self._client = client
        self._looked = looked
        self._image = image
        self.ready: dict[float, int] = {}
        self.late_s = 0.0
        super().__init__(scenario, planner, settings)

    def _queue(self) -> EventQueue:
        self._pods = _PodQueue()
        return self._pods

    def _run_by(self) -> SimulatedProvider:
        self._cluster = _ClusterProvider(self._pods, self._capacity, self._client, self._image)
        return self._cluster

    def _begin(self) -> None:
        self._began_s = time.monotonic()
        super()._begin()
        self._tick(0.0, 0)

    def _tick(self, now: float, number: int) -> None:
        """Wait until the wall clock reaches ``now``, and look at the provider if it is due."""
        ahead_s = now - (time.monotonic() - self._began_s)
        self.late_s = max(self.late_s, -ahead_s)
        threading.Event().wait(max(0.0, ahead_s))
        if not number % _LOOKS:
            self.ready[now] = self._cluster.look()
            self._looked(now)
        self._events.at(now + _TICK_S, self._tick, number + 1)
