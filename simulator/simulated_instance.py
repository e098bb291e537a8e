"""A simulated instance: its class, place and current state."""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, TypeAlias

from carpool.latency import Resources
from carpool.lazy_batching.program import most_batches
from sidecar.core.dispatch import Upstream
from simulator.staged_device import StagedDevice

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.plan import InstanceClass
    from simulator.cluster_capacity import Place
    from simulator.execution import Execution

__all__ = ["Key", "Phase", "SimulatedInstance"]

Key: TypeAlias = tuple[str, Resources]


class Phase(enum.Enum):
    """Phase of an instance's lifecycle."""

    LOADING = "loading"
    READY = "ready"
    LEAVING = "leaving"  # it has said so, and serves until the fronts know
    DRAINING = "draining"  # it gets no batches, and works off what it has
    GONE = "gone"

    __hash__ = object.__hash__  # as that of `sidecar.core.request.State`


class SimulatedInstance:
    """One instance of a function.

    Attributes:
        instance_class: Class it was started for; the number of replicas is not used.
        revision: Revision of the class's deployment.
        execution: Execution times and costs of its batches.
        budget: CPU quota; None for whole cores or if no quota is enforced.
        device: Executes batches stage by stage; None if they run as a whole.
        place: Server and place on it.
        drained: Called with the instance and the time when it has released its resources.
        upstream: The sidecar's view of it.
        phase: Phase of its lifecycle.
        serving: Whether the front sends it batches.
        started: Time of placement.
        ready: Time at which it had loaded; infinity before.
        used: Time of its last finished batch or of loading; minus infinity before.
        busy_until: Time at which its current work will be done, as the sidecar expects.
        cold_before: Requests that arrived earlier waited for it to load (sidecar time).
    """

    __slots__ = (
        "budget",
        "busy_until",
        "cold_before",
        "device",
        "drained",
        "execution",
        "instance_class",
        "phase",
        "place",
        "ready",
        "revision",
        "serving",
        "started",
        "upstream",
        "used",
    )

    streams = 0  # requests are not streamed

    drained: Callable[[SimulatedInstance, float], None]

    def __init__(
        self,
        name: str,
        instance_class: InstanceClass,
        revision: str,
        execution: Execution,
        place: Place,
        now: float,
    ) -> None:
        self.instance_class = instance_class
        self.revision = revision
        self.execution = execution
        self.budget = execution.budget()
        self.device = StagedDevice(execution, execution.program) if execution.program else None
        self.place = place
        self.upstream = Upstream(name, instance_class.batch_size, instance_class.name, up=True)
        if self.device:
            self.upstream.concurrency = most_batches(instance_class.batch_size)
        self.phase = Phase.LOADING
        self.serving = False
        self.started = now
        self.used = self.busy_until = -math.inf
        self.ready = math.inf
        self.cold_before = -math.inf

    @property
    def key(self) -> Key:
        """Key of the instance; instances with equal keys are interchangeable."""
        return self.instance_class.name, self.execution.size

    def end(self, start: float, exec_s: float) -> float:
        """Return when work of ``exec_s`` at full load ends if it begins at ``start``."""
        if self.budget is None:
            return start + exec_s
        return self.budget.end(start, exec_s * self.execution.size.cpu)

    def idle_s(self, now: float) -> float:
        """Return the seconds since its last batch was finished, or since it had loaded."""
        return max(0.0, now - self.used)
