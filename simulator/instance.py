"""An instance in simulated time: what it is, where it is, and how it is doing."""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, TypeAlias

from carpool.latency import Resources
from sidecar.core.dispatch import Upstream
from simulator.staged_device import StagedDevice, room_of

if TYPE_CHECKING:
    from carpool.plan import InstanceClass
    from sidecar.core.exec_time import ExecTime
    from simulator.capacity import Place
    from simulator.execution import Execution

__all__ = ["Instance", "Key", "Phase"]

Key: TypeAlias = tuple[str, Resources]


class Phase(enum.Enum):
    """Where an instance is in its life."""

    LOADING = "loading"
    SERVING = "serving"  # it gets batches
    RESTING = "resting"  # it gets none: it works off what it has, or is kept for a while
    GONE = "gone"

    __hash__ = object.__hash__  # as that of `sidecar.core.states.State`


class Instance:
    """One instance of a function.

    Attributes:
        kind: Its class in the plan that it is there for; the number of replicas says nothing.
        execution: What it does with batches.
        budget: Its part of a core; None: whole ones, or nobody holds it to its part.
        device: Runs them stage by stage; None: as a whole.
        place: Where it is.
        upstream: How the sidecar sees it.
        phase: Where it is in its life.
        wanted: Whether the plan in force asks for it.
        started: When it was placed.
        ready: When it had loaded; infinite before.
        used: When it last finished a batch, or had loaded; minus infinity before.
        busy_until: When it will have executed what it has, by the lane's own time.
        cold_before: Requests that arrived before this time of the lane waited for it to load.
        watched: Whether somebody will look whether it has been idle for too long.
    """

    __slots__ = (
        "budget",
        "busy_until",
        "cold_before",
        "device",
        "execution",
        "kind",
        "phase",
        "place",
        "ready",
        "started",
        "upstream",
        "used",
        "wanted",
        "watched",
    )

    def __init__(
        self, name: str, kind: InstanceClass, execution: Execution, place: Place, now: float
    ) -> None:
        self.kind = kind
        self.execution = execution
        self.budget = execution.budget()
        self.device = StagedDevice(execution) if execution.stages else None
        self.place = place
        self.upstream = Upstream(name, kind.batch_size, kind.name, up=True)
        self.phase = Phase.LOADING
        self.wanted = True
        self.started = now
        self.used = self.busy_until = -math.inf
        self.ready = math.inf
        self.cold_before = -math.inf
        self.watched = False

    @property
    def key(self) -> Key:
        """Instances of equal keys can stand in for each other."""
        return self.kind.name, self.execution.size

    @property
    def idle(self) -> bool:
        """Whether it has loaded and has nothing to execute."""
        return self.phase is not Phase.LOADING and not self.upstream.in_flight

    def end(self, start: float, exec_s: float) -> float:
        """When it is done with what takes ``exec_s`` under full load, if it begins at ``start``."""
        if self.budget is None:
            return start + exec_s
        return self.budget.end(start, exec_s * self.execution.size.cpu)

    def employ(self, kind: InstanceClass, execution: Execution, exec_time: ExecTime) -> None:
        """Be one of ``kind`` from now on, as the plan wants it."""
        self.wanted = True
        self.kind = kind
        self.execution = execution
        upstream = self.upstream
        upstream.batch_max, upstream.instance_class = kind.batch_size, kind.name
        upstream.exec_time = exec_time
        if self.device:
            self.device.employ(execution)
            upstream.at_once = room_of(kind.batch_size)
        if self.phase is Phase.RESTING:
            self.phase = Phase.SERVING
