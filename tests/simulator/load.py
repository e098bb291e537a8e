"""Scenarios in a line, arrivals that are known to the millisecond, and policies without thought."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from carpool.latency.linear import Linear
from carpool.plan import InstanceClass, Plan, Route
from carpool.scaling import Proposal
from scaler.control.planning_result import PlanningResult
from scaler.planning.cost import Prices
from scaler.scenarios.scenario import App, Function, Scenario
from simulator.metrics import measured
from simulator.settings import Settings
from simulator.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from carpool.latency import LatencyModel
    from carpool.scaling import ClusterView, FunctionLoad
    from scaler.arrivals.processes import ArrivalProcess, Seed, Times
    from scaler.control.planning_result import SupportsPlan
    from scaler.planning.placement import Node
    from scaler.planning.snapshot import Snapshot

__all__ = ["FOREVER_S", "At", "Constant", "Every", "Scripted", "Twin", "function", "linear"]
__all__ += ["plan", "run", "scenario"]

FOREVER_S = 1e6


@dataclass(frozen=True)
class At:
    """Requests at these times."""

    times: tuple[float, ...]

    @property
    def mean_rate(self) -> float:
        """Of no interest here."""
        return 1.0

    def rate(self, at_s: float) -> float:
        """As before."""
        del at_s
        return 1.0

    def chunks(self, until_s: float, seed: Seed) -> Iterator[Times]:
        """The times, as they are."""
        del seed
        yield np.array([at for at in self.times if at < until_s])


def Every(period_s: float, until_s: float) -> At:  # noqa: N802  reads as a process
    """A request at the end of each period."""
    return At(tuple((n + 1) * period_s for n in range(round(until_s / period_s))))


def function(
    arrivals: ArrivalProcess | list[App],
    model: LatencyModel,
    *,
    name: str = "f",
    slo_s: float = FOREVER_S,
) -> Function:
    """A function that one application calls, unless several are given."""
    apps = arrivals if isinstance(arrivals, list) else [App("web", slo_s, arrivals)]
    return Function(name, "m", model, slo_s, 0.99, 64, tuple(apps))


def scenario(
    *functions: Function,
    horizon_s: float,
    nodes: Sequence[Node] = (),
    prices: Prices | None = None,
    seed: int = 1,
) -> Scenario:
    """These functions, on these servers."""
    models = {each.name: each.model for each in functions}
    return Scenario(
        Path("scenario.yaml"),
        tuple(nodes),
        prices or Prices(),
        models,
        functions,
        {},
        horizon_s,
        seed,
    )


def plan(  # noqa: D103  what a plan is, in the order in which tests vary it
    name: str,
    version: int,
    replicas: int = 1,
    batch: int = 1,
    wait_s: float = 0.0,
    *,
    kind: str = "a",
    cpu: float = 1.0,
    gpu: float = 0.0,
    waits: dict[str, float] | None = None,
    prewarm_s: float = 0.0,
    keep_alive_s: float | None = None,
) -> Plan:
    only = InstanceClass(kind, cpu, batch, replicas, gpu=gpu)
    routes = [Route(app, {kind: 1.0}, wait) for app, wait in (waits or {"*": wait_s}).items()]
    return Plan(
        name,
        version,
        "test",
        (only,),
        tuple(routes),
        prewarm_s=prewarm_s,
        keep_alive_s=keep_alive_s,
    )


class Constant:
    """The same plan for every function, always."""

    @dataclass(frozen=True)
    class Params:
        """What the plan is."""

        replicas: int = 1
        batch: int = 1
        wait_s: float = 0.0

    def __init__(self, params: Params, **more: Any) -> None:
        self._params = params
        self._more = more

    def plan(self, snapshot: Snapshot) -> PlanningResult:
        params = self._params
        return PlanningResult(
            {
                load.name: load.plan
                or plan(load.name, 1, params.replicas, params.batch, params.wait_s, **self._more)
                for load in snapshot.functions
            }
        )

    def propose(self, loads: Sequence[FunctionLoad], cluster: ClusterView) -> dict[str, Proposal]:
        """The same, as a policy behind a guard."""
        del cluster
        params, found = self._params, {}
        for load in loads:
            (shape, *_) = load.model.configurations(1)
            size = load.size(params.batch, shape.cpu, shape.gpu)
            assert size is not None
            found[load.name] = Proposal({size: params.replicas}, wait_s=params.wait_s)
        return found


class Scripted:
    """Plans by a script, which is asked with the time and the function's load."""

    def __init__(self, script: Callable[[float, FunctionLoad], Plan | None]) -> None:
        self._script = script
        self.seen: list[Snapshot] = []

    def plan(self, snapshot: Snapshot) -> PlanningResult:
        self.seen.append(snapshot)
        plans = {load.name: self._script(snapshot.now_s, load) for load in snapshot.functions}
        return PlanningResult({name: plan for name, plan in plans.items() if plan})


def run(scenario: Scenario, policy: SupportsPlan, **settings: Any) -> dict[str, Any]:
    """The metrics of a run, which have to add up whatever else they say."""
    outcome = Simulation(scenario, policy, Settings(**({"interval_s": 10.0} | settings))).run()
    result = measured(outcome)
    for run in outcome.functions:
        assert math.isclose(run.requests, run.total.ended)
        assert run.sidecar.batcher.idle
    return result


def linear(base_s: float, per_item_s: float = 0.0, load_s: float = 0.0) -> Linear:
    """A batch takes so long."""
    return Linear(base_s, per_item_s, load_s=load_s)


class Twin(Constant):
    """Another one like it, to compare it with."""
