"""One function in a simulation: its controller, its queue, its instances, and its results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from carpool.app_setting import App
from carpool.settings import FunctionSettings
from carpool.sync import Announcement
from scaler.control.class_function import Status
from simulator.instance import Phase
from simulator.outcomes import Outcomes
from simulator.results import FunctionRecord, Moment, ScenarioResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler.arrivals.processes import Times
    from scaler.control.controller import Controller
    from scaler.functions import Functions
    from scaler.scenarios.scenario import Function
    from simulator.application import SendingApplication
    from simulator.execution import Executions
    from simulator.instance import Instance
    from simulator.simulated_sidecar import SimulatedSidecar

__all__ = ["FunctionRun", "SimulationResult", "declared"]

_POLICY_LABEL = {"com.carpool.scale.policy": "simulated"}  # functions without one are not scaled


@dataclass(slots=True, kw_only=True)
class FunctionRun(FunctionRecord):
    """One function.

    Attributes:
        controller: The scaler's controller of it.
        functions: The scaler's functions, which instances announce themselves to.
        executions: What its instances do.
        instances: Those there are, by address.
        version: Grows with every change of those that serve or load.
        sidecar: The simulated one.
        callers: One an application.
    """

    controller: Controller
    functions: Functions
    executions: Executions
    instances: dict[str, Instance] = field(default_factory=dict)
    version: int = 0
    sidecar: SimulatedSidecar = field(init=False)
    callers: list[SendingApplication] = field(init=False)
    _messages: int = 0
    _addresses: int = 0

    @property
    def steady(self) -> bool:
        """Whether the same instances keep serving while requests come as they do."""
        plan = self.controller.plan
        return (
            plan is not None
            and not (self.controller.changing or self.controller.asleep or plan.prewarm_s)
            and all(i.phase is Phase.READY for i in self.instances.values())
        )

    @property
    def serving(self) -> list[Instance]:
        """The instances that get batches."""
        return [i for i in self.instances.values() if i.serving]

    def next_address(self) -> str:
        """Where the next instance is; in the order of starting also as a text."""
        self._addresses += 1
        return f"{self._addresses:08}"

    def started(self, instance: Instance) -> None:
        """One more instance loads."""
        self.instances[instance.upstream.name] = instance
        self.version += 1

    def gone(self, instance: Instance, now: float) -> None:
        """An instance is no more."""
        del self.instances[instance.upstream.name]
        self.version += 1
        self.reserved.count(instance, now)

    def announce(self, instance: Instance, state: Literal["ready", "leaving"]) -> None:
        """``instance`` says how it is."""
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
        """From one message of a sidecar to its next."""
        return self.functions.interval_s(self.controller)

    def settle(self) -> Outcomes:
        """Add what was served since the last time to the total; returns it."""
        served, self.sidecar.served = self.sidecar.served.settle(), Outcomes()
        self.total.add(served)
        return served

    def note(self, start_s: float, end_s: float, times: Sequence[Times]) -> None:
        """A stretch of time is over, with these arrivals of each application."""
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
    """Results of a scenario in simulated time."""

    functions: list[FunctionRun]


@dataclass(frozen=True, slots=True)
class _Declared(Status):
    """A function whose settings are a scenario's, which are no texts."""

    given: FunctionSettings = field(default_factory=FunctionSettings)

    def settings(self) -> FunctionSettings:
        return self.given


def declared(function: Function) -> Status:
    """A function of a scenario, as if a user had deployed it."""
    settings = FunctionSettings(
        slo_s=function.slo_s,
        percentile=function.percentile,
        batch_max=function.max_batch,
        scale_min=0,
        apps=tuple(App(app.name, app.slo_s, app.accuracy) for app in function.apps),
    )
    document = {"name": function.name, "labels": _POLICY_LABEL}
    return _Declared(function.name, 1, 1, document, settings)
