"""One simulated function: its controller, queue, instances and results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from carpool.app_setting import App
from carpool.settings import FunctionSettings
from carpool.sync import Announcement
from scaler.control.class_function import Status
from simulator.outcomes import Outcomes
from simulator.results import FunctionRecord, Moment, ScenarioResult
from simulator.simulated_instance import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.arrivals.processes import Times
    from scaler.control.controller import Controller
    from scaler.control.functions import Functions
    from scaler.scenarios.scenario import Function
    from simulator.application import SendingApplication
    from simulator.execution import Executions
    from simulator.simulated_instance import SimulatedInstance
    from simulator.simulated_sidecar import SimulatedSidecar

__all__ = ["FunctionRun", "SimulationResult", "declared"]

_POLICY_LABEL = {"com.carpool.scale.policy": "simulated"}  # functions without one are not scaled


@dataclass(slots=True, kw_only=True)
class FunctionRun(FunctionRecord):
    """One simulated function.

    Attributes:
        controller: The scaler's controller of the function.
        functions: The scaler's functions, to which instances announce themselves.
        executions: Execution times and costs of its instances.
        instances: Current instances, by address.
        version: Incremented whenever the set of serving or loading instances changes.
        sidecar: The simulated sidecar.
        callers: One per application.
    """

    controller: Controller
    functions: Functions
    executions: Executions
    instances: dict[str, SimulatedInstance] = field(default_factory=dict)
    version: int = 0
    sidecar: SimulatedSidecar = field(init=False)
    callers: list[SendingApplication] = field(init=False)
    _messages: int = 0
    _addresses: int = 0

    @property
    def steady(self) -> bool:
        """Whether the same instances keep serving as long as the arrival rate stays the same."""
        plan = self.controller.plan
        return (
            plan is not None
            and not (self.controller.changing or self.controller.asleep or plan.prewarm_s)
            and all(i.phase is Phase.READY for i in self.instances.values())
        )

    @property
    def serving(self) -> list[SimulatedInstance]:
        """Return the instances that receive batches."""
        return [i for i in self.instances.values() if i.serving]

    def next_address(self) -> str:
        """Return the next instance's address; addresses also sort as text in starting order."""
        self._addresses += 1
        return f"{self._addresses:08}"

    def started(self, instance: SimulatedInstance) -> None:
        """Add an instance that has begun to load."""
        self.instances[instance.upstream.name] = instance
        self.version += 1

    def gone(self, instance: SimulatedInstance, now: float) -> None:
        """Remove an instance."""
        del self.instances[instance.upstream.name]
        self.version += 1
        self.reserved.count(instance, now)

    def announce(self, instance: SimulatedInstance, state: Literal["ready", "leaving"]) -> None:
        """Announce the state of ``instance`` to the scaler."""
        self._messages += 1
        self.version += state == "leaving"
        self.functions.announced(
            self.controller,
            Announcement(
                self.function.name,
                instance.upstream.name,
                self._messages,
                instance.instance_class.name,
                instance.upstream.name,
                state,
                instance.execution.load_s,
            ),
        )

    def interval_s(self) -> float:
        """Return the time between two reports of a sidecar, in seconds."""
        return self.functions.interval_s(self.controller)

    def settle(self) -> Outcomes:
        """Add the outcomes since the last call to the total, and return them."""
        outcomes, self.sidecar.outcomes = self.sidecar.outcomes.settle(), Outcomes()
        self.total.add(outcomes)
        return outcomes

    def note(self, start_s: float, end_s: float, times: Sequence[Times]) -> None:
        """Record an interval with each application's arrivals."""
        arrived = sum(map(len, times))
        for app, own in zip(self.function.apps, times, strict=True):
            self.requests_by_app[app.name] += len(own)
        loading = sum(i.phase is Phase.LOADING for i in self.instances.values())
        rate_rps = arrived / (end_s - start_s)
        ready = len(self.instances) - loading
        cost = (
            self.total.cost
            + self.reserved.cost
            + self.reserved.accrued(self.instances.values(), end_s)
        )
        self.moments.append(Moment(end_s, rate_rps, ready, loading, self.total.missed, cost))


@dataclass(slots=True)
class SimulationResult(ScenarioResult):
    """Results of a simulated scenario."""

    functions: list[FunctionRun]


@dataclass(frozen=True, slots=True)
class _Declared(Status):
    """A function whose settings come from a scenario instead of labels."""

    given: FunctionSettings = field(default_factory=FunctionSettings)

    def settings(self) -> FunctionSettings:
        return self.given


def declared(function: Function) -> Status:
    """Return a scenario's function as if it had been deployed."""
    settings = FunctionSettings(
        slo_s=function.slo_s,
        percentile=function.percentile,
        batch_max=function.max_batch,
        scale_min=0,
        apps=tuple(App(app.name, app.slo_s, app.accuracy) for app in function.apps),
    )
    document = {"name": function.name, "labels": _POLICY_LABEL}
    return _Declared(function.name, 1, 1, document, settings)
