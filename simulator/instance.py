"""An instance in simulated time: what it is, where it is, and how it is doing."""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, TypeAlias

from carpool.latency import Resources
from sidecar.core.dispatch import Upstream
from simulator.staged_device import StagedDevice, room_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.plan import InstanceClass
    from sidecar.core.exec_time import ExecTime
    from simulator.capacity import Place
    from simulator.execution import Execution

__all__ = ["Instance", "Key", "Phase"]

Key: TypeAlias = tuple[str, Resources]


class Phase(enum.Enum):
    """Where an instance is in its life."""

    LOADING = "loading"
    READY = "ready"
    LEAVING = "leaving"  # it has said so, and serves until the fronts know
    DRAINING = "draining"  # it gets no batches, and works off what it has
    GONE = "gone"

    __hash__ = object.__hash__  # as that of `sidecar.core.request.State`


class Instance:
    """One instance of a function.

    Attributes:
        instance_class: What it was started for; the number of replicas says nothing.
        revision: Of the class's deployment.
        execution: What it does with batches.
        budget: Its part of a core; None: whole ones, or nobody holds it to its part.
        device: Runs them stage by stage; None: as a whole.
        place: Where it is.
        drained: Called when it has given back what it had, with itself and the time.
        upstream: How the sidecar sees it.
        phase: Where it is in its life.
        serving: Whether the front sends it batches.
        started: When it was placed.
        ready: When it had loaded; infinite before.
        used: When it last finished a batch, or had loaded; minus infinity before.
        busy_until: When it will have executed what it has, by the sidecar's own time.
        cold_before: Requests that arrived before this time of the sidecar waited for it to load.
        batches, item_count, exec_s: What it has executed since the last report.
    """

    __slots__ = (
        "batches",
        "budget",
        "busy_until",
        "cold_before",
        "device",
        "drained",
        "exec_s",
        "execution",
        "instance_class",
        "item_count",
        "phase",
        "place",
        "ready",
        "revision",
        "serving",
        "started",
        "upstream",
        "used",
    )

    drained: Callable[[Instance, float], None]

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
            self.upstream.concurrency = room_of(instance_class.batch_size)
        self.phase = Phase.LOADING
        self.serving = False
        self.started = now
        self.used = self.busy_until = -math.inf
        self.ready = math.inf
        self.cold_before = -math.inf
        self.batches = self.item_count = 0
        self.exec_s = 0.0

    @property
    def key(self) -> Key:
        """Instances of equal keys are alike."""
        return self.instance_class.name, self.execution.size

    def end(self, start: float, exec_s: float) -> float:
        """When it is done with what takes ``exec_s`` under full load, if it begins at ``start``."""
        if self.budget is None:
            return start + exec_s
        return self.budget.end(start, exec_s * self.execution.size.cpu)

    def executed(self, item_count: int, exec_s: float) -> None:
        """A batch came back after so long, for the next report."""
        self.batches += 1
        self.item_count += item_count
        self.exec_s += exec_s

    def follow(self, instance_class: InstanceClass, exec_time: ExecTime) -> None:
        """The front sends it batches as one of ``instance_class``."""
        upstream = self.upstream
        upstream.batch_max, upstream.instance_class = instance_class.batch_size, instance_class.name
        upstream.exec_time = exec_time
        upstream.overloaded = upstream.interfered = False
