"""Short scenarios, arrivals at exact times and trivial policies for simulator tests."""

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

    from carpool.arrivals.processes import ArrivalProcess, Seed, Times
    from carpool.latency import LatencyModel
    from carpool.scaling import ClusterView, FunctionLoad
    from scaler.control.planning_result import SupportsPlan
    from scaler.planning.placement import Node
    from scaler.planning.snapshot import Snapshot

__all__ = ["FOREVER_S", "At", "Constant", "Every", "Scripted", "Twin", "function", "linear"]
__all__ += ["plan", "run", "scenario"]

FOREVER_S = 1e6


@dataclass(frozen=True)
class At:
    """Arrivals at given times."""

    times: tuple[float, ...]

    @property
    def mean_rate(self) -> float:
        """Arbitrary rate."""
        return 1.0

    @property
    def phase_rates(self) -> None:
        """None, as the times are fixed."""

    def rate(self, at_s: float) -> float:
        """Return the arbitrary rate."""
        del at_s
        return 1.0

    def chunks(self, until_s: float, seed: Seed) -> Iterator[Times]:
        """Yield the times unchanged."""
        del seed
        yield np.array([at for at in self.times if at < until_s])


def Every(period_s: float, until_s: float) -> At:  # noqa: N802  reads as a process
    """Return arrivals at the end of each period."""
    return At(tuple((n + 1) * period_s for n in range(round(until_s / period_s))))


def function(
    arrivals: ArrivalProcess | list[App],
    model: LatencyModel,
    *,
    name: str = "f",
    slo_s: float = FOREVER_S,
) -> Function:
    """Return a function with one application, or with the given ones."""
    apps = arrivals if isinstance(arrivals, list) else [App("web", slo_s, arrivals)]
    return Function(name, "m", model, slo_s, 0.99, 64, tuple(apps))


def scenario(
    *functions: Function,
    horizon_s: float,
    nodes: Sequence[Node] = (),
    prices: Prices | None = None,
    seed: int = 1,
) -> Scenario:
    """Return a scenario of these functions on these servers."""
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
    """Policy that always returns the same plan for every function."""

    @dataclass(frozen=True)
    class Params:
        """Parameters of the plan."""

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
        """Propose the same as ``plan``, for use behind a guard."""
        del cluster
        params, found = self._params, {}
        for load in loads:
            (shape, *_) = load.model.configurations(1)
            size = load.size(params.batch, shape.cpu, shape.gpu)
            assert size is not None
            found[load.name] = Proposal({size: params.replicas}, wait_s=params.wait_s)
        return found


class Scripted:
    """Plans by a script that is called with the time and the function's load."""

    def __init__(self, script: Callable[[float, FunctionLoad], Plan | None]) -> None:
        self._script = script
        self.seen: list[Snapshot] = []

    def plan(self, snapshot: Snapshot) -> PlanningResult:
        self.seen.append(snapshot)
        plans = {load.name: self._script(snapshot.now_s, load) for load in snapshot.functions}
        return PlanningResult({name: plan for name, plan in plans.items() if plan})


def run(scenario: Scenario, policy: SupportsPlan, **settings: Any) -> dict[str, Any]:
    """Return the metrics of a run after checking that they add up."""
    outcome = Simulation(scenario, policy, Settings(**({"interval_s": 10.0} | settings))).run()
    result = measured(outcome)
    for run in outcome.functions:
        assert math.isclose(run.requests, run.total.ended)
        assert run.sidecar.batcher.idle
    return result


def linear(base_s: float, per_item_s: float = 0.0, load_s: float = 0.0) -> Linear:
    """Return a linear latency model."""
    return Linear(base_s, per_item_s, load_s=load_s)


class Twin(Constant):
    """Copy of the constant policy to compare with it."""
