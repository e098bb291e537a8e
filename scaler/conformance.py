"""Tests a scaling policy, behind its guard, in random scenarios that include extreme loads.

Scenarios are drawn from seeds, the small ones first: functions with models of several kinds, some
of which meet no objective; servers, or none; rates that jump, vanish, stay constant, or are not
numbers. Each scenario is run twice, with two fresh policies; one that breaks a promise is shrunk to
what is needed to show it. How good a policy's plans are is not judged.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from carpool import plugins
from carpool.latency.table import Table
from carpool.policy_errors import Broken
from carpool.scaling import Application, FunctionLoad, class_name
from carpool.testing import BrokenPromise, ScaleReport
from carpool.variants.variant_set import model_of
from scaler.control.guard import Guard
from scaler.control.plan_size import capacity_rps
from scaler.control.stabilization import StabilizationLimits
from scaler.planning.placement import Node
from scaler.random_models import random_model
from scaler.testing import Rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from carpool.plan import Plan
    from scaler.control.planning_result import PlanningResult, SupportsPlan
    from scaler.planning.snapshot import Snapshot

__all__ = ["PROMISES", "check_planner", "check_policy"]

SANE = "it raises no errors, and proposes known sizes for the functions it was given"
RESTS = "at a constant load its plans stop changing"
SAME = "two instances of it behave the same"
SILENT = "a function whose rate is not a number keeps its plan"
FITS = "no more is planned than the servers' free capacity"
BOUNDED = "no function gets more instances than its maximum"
KNOWN = "every class has a size that the latency model knows"
HONEST = "the part of a rate that instances cannot serve is reported as unplaced"
VERSIONS = "a changed plan has a higher version, an unchanged plan the same"
PROMISES = (SANE, RESTS, SAME, SILENT, FITS, BOUNDED, KNOWN, HONEST, VERSIONS)

_ROUND_S = 60.0
_CONSTANT = 12  # last rounds of a scenario, in which the load stays as it is
_AT_REST = 3  # rounds at the end in which nothing may change
_TOLERANCE = 1e-6
# What is judged is the policy, not how fast it may be followed.
_AT_ONCE = StabilizationLimits(window_s=0.0, growth_least=10**6, shrink=1.0)


@dataclass(frozen=True)
class _Scenario:
    """The input of planning: functions, servers, and each function's rate in each round."""

    functions: tuple[FunctionLoad, ...]
    nodes: tuple[Node, ...]
    rates_rps: tuple[Mapping[str, float], ...]

    def __str__(self) -> str:
        changing, constant = self.rates_rps[:-_CONSTANT], self.rates_rps[-1]
        rates = [*map(_rates, changing), f"{_CONSTANT} times {_rates(constant)}"]
        parts = [*map(_described, self.functions), *map(str, self.nodes)]
        return "\n".join([*parts, f"requests/s by round: {'; '.join(rates)}"])

    def without_one(self) -> Iterator[_Scenario]:
        """Yield the scenarios that lack one function, one server, or one round of changing load."""
        for left in self.functions if len(self.functions) > 1 else ():
            rates_rps = [
                {name: rate for name, rate in each.items() if name != left.name}
                for each in self.rates_rps
            ]
            functions = tuple(load for load in self.functions if load is not left)
            yield replace(self, functions=functions, rates_rps=tuple(rates_rps))
        for number in range(len(self.nodes)):
            yield replace(self, nodes=self.nodes[:number] + self.nodes[number + 1 :])
        for number in range(len(self.rates_rps) - _CONSTANT):
            rounds = self.rates_rps[:number] + self.rates_rps[number + 1 :]
            yield replace(self, rates_rps=rounds)


def _rates(rates_rps: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {rate:.4g}" for name, rate in rates_rps.items())


def _described(load: FunctionLoad) -> str:
    objectives = ", ".join(f"{app.slo_s:g} s" for app in load.apps)
    least, most = load.min_instances, load.max_instances or "any number of"
    model: object = load.model
    if isinstance(model, Table):
        rows = [f"{class_name(*size)} {1e3 * exec_s:.3g} ms" for size, exec_s in model.rows.items()]
        model = f"latencies {', '.join(rows)}"
    return (
        f"{load.name}: {objectives} for {load.percentile:g} of the requests, batches of at most "
        f"{load.max_batch}, {least} to {most} instances; {model}"
    )


def check_policy(
    policy: type[Any] | str, params: Mapping[str, Any], *, seed: int, scenarios: int
) -> ScaleReport:
    """Implement `carpool.testing.check_scale_policy`."""
    policy_class = plugins.resolve("scale", policy) if isinstance(policy, str) else policy
    name = policy if isinstance(policy, str) else policy.__qualname__
    return check_planner(
        name,
        lambda: Guard(plugins.build(policy_class, params), _AT_ONCE),
        seed=seed,
        scenarios=scenarios,
    )


def check_planner(
    name: str, fresh: Callable[[], SupportsPlan], *, seed: int, scenarios: int
) -> ScaleReport:
    """Check any planner as `check_policy` does; ``fresh`` makes a new one."""
    rounds = plans = 0
    for number in range(scenarios):
        scenario = _drawn(seed + number, 1 + 3 * number // max(scenarios, 1))
        try:
            first = _driven_twice(scenario, fresh)
        except Broken as broken:
            scenario, shown = _shrunk(scenario, broken, fresh)
            raise BrokenPromise(
                name, shown.promise, shown.detail, seed + number, str(scenario)
            ) from broken
        rounds += len(first)
        plans += sum(len(planning.plans) for planning in first)
    return ScaleReport(name, PROMISES, scenarios, rounds, plans)


def _shrunk(
    scenario: _Scenario, broken: Broken, fresh: Callable[[], SupportsPlan]
) -> tuple[_Scenario, Broken]:
    """Return a scenario of which each part is needed to break the promise, and how it is broken."""
    for smaller in scenario.without_one():
        try:
            _driven_twice(smaller, fresh)
        except Broken as again:
            if again.promise == broken.promise:
                return _shrunk(smaller, again, fresh)
    return scenario, broken


def _driven_twice(scenario: _Scenario, fresh: Callable[[], SupportsPlan]) -> list[PlanningResult]:
    first = _driven(scenario, fresh())
    if first != _driven(scenario, fresh()):
        raise Broken(SAME, "two instances made different plans for the same loads")
    return first


def _driven(scenario: _Scenario, planner: SupportsPlan) -> list[PlanningResult]:
    rounds = Rounds(planner, scenario.functions, scenario.nodes)
    made: list[PlanningResult] = []
    for number, rates_rps in enumerate(scenario.rates_rps):
        snapshot = rounds.snapshot(number * _ROUND_S, rates_rps)
        planning = planner.plan(snapshot)
        for name, failure in planning.failures.items():
            raise Broken(SANE, f"{name} in round {number}: {failure}")
        _check_round(snapshot, planning)
        rounds.carry_out(planning.plans)
        if rounds.unplaced and _is_exact(scenario):
            raise Broken(FITS, f"round {number}: no capacity for {rounds.unplaced}")
        made.append(planning)
    resting = [dict(planning.plans) for planning in made[-_AT_REST:]]
    if any(_moved(plans, resting[0]) for plans in resting):
        raise Broken(RESTS, f"plans still change after {_CONSTANT} rounds at one rate")
    return made


def _moved(plans: Mapping[str, Plan], before: Mapping[str, Plan]) -> bool:
    return any(name in before and before[name] != plan for name, plan in plans.items())


def _is_exact(scenario: _Scenario) -> bool:
    """Return whether placement never depends on the order: one server with at most one GPU."""
    return len(scenario.nodes) == 1 and scenario.nodes[0].gpus <= 1


def _check_round(snapshot: Snapshot, planning: PlanningResult) -> None:
    loads = {load.name: load for load in snapshot.functions}
    for name, plan in planning.plans.items():
        if math.isnan(loads[name].rate_rps):
            raise Broken(SILENT, f"{name} has version {plan.version} at a rate of nan")
        _check_plan(loads[name], plan)
    _check_honest(loads, planning)
    _check_capacity(snapshot, planning)


def _check_plan(load: FunctionLoad, plan: Plan) -> None:
    instances = sum(each.replicas for each in plan.classes)
    if load.max_instances is not None and instances > load.max_instances:
        raise Broken(BOUNDED, f"{instances} of {load.name}, whose maximum is {load.max_instances}")
    for each in plan.classes:
        size = (each.batch_size, each.cpu, each.gpu)
        if model_of(load.model, each.variant).predict(*size, load.percentile) is None:
            raise Broken(KNOWN, f"{load.name} has no {size} of batch, cores and GPU percent")
    before = load.plan
    if before is None or plan == before:
        return
    if plan.version <= before.version:
        raise Broken(VERSIONS, f"{load.name}: {plan.version} after {before.version}")


def _check_honest(loads: Mapping[str, FunctionLoad], planning: PlanningResult) -> None:
    for name, load in loads.items():
        plan = planning.plans.get(name, load.plan)
        taken_rps = capacity_rps(plan.classes if plan else ())
        said_rps = planning.unplaced.get(name, 0.0)
        if taken_rps + said_rps < load.rate_rps * (1 - _TOLERANCE):
            detail = f"{name}: {load.rate_rps}/s, of which {taken_rps} served, {said_rps} unplaced"
            raise Broken(HONEST, detail)


def _check_capacity(snapshot: Snapshot, planning: PlanningResult) -> None:
    """Check the total size of all plans against all servers, which any placement requires."""
    if snapshot.cluster is None:
        return
    cores = gpu = 0.0
    for load in snapshot.functions:
        plan = planning.plans.get(load.name, load.plan)
        for each in plan.classes if plan else ():
            model = model_of(load.model, each.variant)
            size = model.resources(each.batch_size, each.cpu, each.gpu)
            cores += each.replicas * size.cpu
            gpu += each.replicas * size.gpu
    nodes = snapshot.cluster.nodes
    whole = (sum(node.cpu for node in nodes), sum(node.gpus * 100.0 for node in nodes))
    if cores > whole[0] + _TOLERANCE or gpu > whole[1] + _TOLERANCE:
        raise Broken(FITS, f"{cores} cores and {gpu} % of GPUs planned, of {whole}")


def _drawn(seed: int, functions: int) -> _Scenario:
    draw = random.Random(seed)  # noqa: S311  not for secrets
    loads = tuple(_function(f"f{number}", draw) for number in range(functions))
    changing = [{load.name: _any_rate(draw) for load in loads} for _ in range(draw.randrange(1, 8))]
    constant = [{load.name: _rate(draw) for load in loads}] * _CONSTANT
    return _Scenario(loads, tuple(_nodes(draw)), (*changing, *constant))


def _nodes(draw: random.Random) -> Iterator[Node]:
    for number in range(draw.choice((0, 1, 1, 3))):
        memory_mb = draw.choice((math.inf, 16384.0))
        yield Node(f"n{number}", draw.choice((2.0, 8.0, 32.0)), draw.randrange(3), memory_mb)


def _any_rate(draw: random.Random) -> float:
    return math.nan if draw.random() < 0.05 else _rate(draw)  # noqa: PLR2004  now and then


def _rate(draw: random.Random) -> float:
    return draw.choice((0.0, 0.01, 1.0, draw.uniform(0, 20), draw.uniform(0, 500)))


def _function(name: str, draw: random.Random) -> FunctionLoad:
    slo_s = draw.choice((0.02, 0.2, 1.0))
    apps = [Application("all", slo_s, 0.0)]
    if draw.random() < 0.3:  # noqa: PLR2004  nearly a third
        apps.append(Application("lax", 2 * slo_s, 0.0))
    most = draw.choice((None, None, 3))
    return FunctionLoad(
        name,
        random_model(draw),
        slo_s,
        draw.choice((0.9, 0.99)),
        draw.choice((1, 8, 32)),
        tuple(apps),
        min_instances=draw.choice((0, 0, 1)),
        max_instances=most,
    )
