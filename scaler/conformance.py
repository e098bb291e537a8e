"""Drives a scaling policy through everything that should not shake it.

Scenarios are drawn from seeds, the small ones before the large: functions with models of several
kinds, some of which meet no objective; servers, or none; rates that jump, vanish and stay. Each is
driven twice, with two fresh policies. Whether a policy is a good one is not judged.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from carpool import plugins
from carpool.latency.variant_set import model_of
from carpool.plan import Plan
from carpool.testing import BrokenPromise, ScaleReport
from scaler.core.placement import Node
from scaler.core.policy import Planning
from scaler.core.snapshot import AppLoad, FunctionView
from scaler.drawn_models import drawn_model
from scaler.testing import Rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from scaler.core.policy import ScalePolicy
    from scaler.core.snapshot import Snapshot

__all__ = ["PROMISES", "check_policy"]

SANE = "it raises nothing, and answers with plans and rates of functions that it was shown"
READS = "it changes nothing that it is shown"
FITS = "it plans no more than the servers have left"
BOUNDED = "no function gets more instances than it may have"
KNOWN = "every class has a size that the model knows"
HONEST = "what its instances cannot take of a rate it says to be unplaced"
VERSIONS = "another plan has a higher version, the same plan the same"
RESTS = "at a constant load its plans come to rest"
SAME = "two of it do the same"
PROMISES = (SANE, READS, FITS, BOUNDED, KNOWN, HONEST, VERSIONS, RESTS, SAME)

_ROUND_S = 60.0
_CONSTANT = 12  # last rounds of a scenario, in which the load stays as it is
_AT_REST = 3  # rounds at the end in which nothing may change
_TOLERANCE = 1e-6


class _Broken(Exception):
    """A promise that was not kept, and what was seen instead."""

    def __init__(self, promise: str, detail: str) -> None:
        super().__init__(detail)
        self.promise = promise
        self.detail = detail


@dataclass(frozen=True)
class _Scenario:
    """What is planned for: functions, servers, and the rate of each function in each round."""

    functions: tuple[FunctionView, ...]
    nodes: tuple[Node, ...]
    rates_rps: tuple[Mapping[str, float], ...]

    def __str__(self) -> str:
        parts = [*map(str, self.functions), *map(str, self.nodes)]
        return "\n".join([*parts, f"rates by round: {list(self.rates_rps)}"])


def check_policy(
    policy: type[Any] | str, params: Mapping[str, Any], *, seed: int, scenarios: int
) -> ScaleReport:
    """What `carpool.testing.check_scale_policy` says."""
    policy_class = plugins.resolve("scale", policy) if isinstance(policy, str) else policy
    name = policy if isinstance(policy, str) else policy.__qualname__
    rounds = plans = 0
    for number in range(scenarios):
        scenario = _drawn(seed + number, 1 + 3 * number // max(scenarios, 1))
        try:
            first = _driven_twice(scenario, lambda: plugins.build(policy_class, params))
        except _Broken as broken:
            found = seed + number
            raise BrokenPromise(
                name, broken.promise, broken.detail, found, str(scenario)
            ) from broken
        rounds += len(first)
        plans += sum(len(planning.plans) for planning in first)
    return ScaleReport(name, PROMISES, scenarios, rounds, plans)


def _driven_twice(scenario: _Scenario, fresh: Callable[[], ScalePolicy]) -> list[Planning]:
    first = _driven(scenario, fresh())
    if first != _driven(scenario, fresh()):
        raise _Broken(SAME, "two policies made different plans of the same snapshots")
    return first


def _driven(scenario: _Scenario, policy: ScalePolicy) -> list[Planning]:
    rounds = Rounds(policy, scenario.functions, scenario.nodes)
    made: list[Planning] = []
    for number, rates_rps in enumerate(scenario.rates_rps):
        snapshot = rounds.snapshot(number * _ROUND_S, rates_rps)
        seen = _picture(snapshot)
        try:
            planning = policy.plan(snapshot)
        except Exception as error:
            raise _Broken(SANE, f"{type(error).__name__} in round {number}: {error}") from error
        if _picture(snapshot) != seen:
            raise _Broken(READS, f"the snapshot of round {number} is another one after planning")
        _check_round(snapshot, planning)
        rounds.carry_out(planning.plans)
        if rounds.homeless and _is_exact(scenario):
            raise _Broken(FITS, f"round {number}: no room for {rounds.homeless}")
        made.append(planning)
    resting = [dict(planning.plans) for planning in made[-_AT_REST:]]
    if any(_moved(plans, resting[0]) for plans in resting):
        raise _Broken(RESTS, f"plans still change after {_CONSTANT} rounds at one rate")
    return made


def _moved(plans: Mapping[str, Plan], before: Mapping[str, Plan]) -> bool:
    return any(name in before and before[name] != plan for name, plan in plans.items())


def _picture(snapshot: Snapshot) -> object:
    """Everything in a snapshot that a policy could have changed."""
    cluster = snapshot.cluster
    left = cluster and [cluster.left(node) for node in range(len(cluster.nodes))]
    return left, [(view.apps, view.plan, dict(view.instances)) for view in snapshot.functions]


def _is_exact(scenario: _Scenario) -> bool:
    """Whether instances have room in any order if they have in one: on one server, one GPU."""
    return len(scenario.nodes) == 1 and scenario.nodes[0].gpus <= 1


def _check_round(snapshot: Snapshot, planning: object) -> None:
    if not isinstance(planning, Planning):
        raise _Broken(SANE, f"it answered with {planning!r:.80}")
    views = {view.name: view for view in snapshot.functions}
    plans: Mapping[str, object] = planning.plans
    for name, plan in plans.items():
        if name not in views or not isinstance(plan, Plan) or plan.function != name:
            raise _Broken(SANE, f"for {name} it answered with {plan!r:.80}")
        _check_plan(views[name], plan)
    for name, rate_rps in planning.unplaced.items():
        if name not in views or not 0 < rate_rps <= views[name].rate_rps * (1 + _TOLERANCE):
            raise _Broken(SANE, f"it said that {rate_rps} of {name} is unplaced")
    _check_honest(views, planning)
    _check_room(snapshot, planning)


def _check_plan(view: FunctionView, plan: Plan) -> None:
    instances = sum(kind.replicas for kind in plan.classes)
    if view.max_instances is not None and instances > view.max_instances:
        raise _Broken(BOUNDED, f"{instances} of {view.name}, which may have {view.max_instances}")
    for kind in plan.classes:
        size = (kind.batch_size, kind.cpu, kind.gpu)
        if model_of(view.model, kind.variant).predict(*size, view.percentile) is None:
            raise _Broken(KNOWN, f"{view.name} has no {size} of batch, cores and GPU percent")
    before = view.plan
    if before is None or plan == before:
        return
    if plan.version <= before.version:
        raise _Broken(VERSIONS, f"{view.name}: {plan.version} after {before.version}")


def _check_honest(views: Mapping[str, FunctionView], planning: Planning) -> None:
    for name, view in views.items():
        plan = planning.plans.get(name, view.plan)
        taken_rps = _taken(plan) if plan else 0.0
        said_rps = planning.unplaced.get(name, 0.0)
        if taken_rps + said_rps < view.rate_rps * (1 - _TOLERANCE):
            detail = f"{name}: of {view.rate_rps} instances take {taken_rps}, unplaced {said_rps}"
            raise _Broken(HONEST, detail)


def _taken(plan: Plan) -> float:
    rates = [math.inf if k.rate_high is None else k.rate_high for k in plan.classes if k.replicas]
    counts = [kind.replicas for kind in plan.classes if kind.replicas]
    return sum(rate * count for rate, count in zip(rates, counts, strict=True))


def _check_room(snapshot: Snapshot, planning: Planning) -> None:
    """What all plans want together, against what all servers have: necessary in any packing."""
    if snapshot.cluster is None:
        return
    cores = gpu = 0.0
    for view in snapshot.functions:
        plan = planning.plans.get(view.name, view.plan)
        for kind in plan.classes if plan else ():
            model = model_of(view.model, kind.variant)
            size = model.resources(kind.batch_size, kind.cpu, kind.gpu)
            cores += kind.replicas * size.cpu
            gpu += kind.replicas * size.gpu
    nodes = snapshot.cluster.nodes
    whole = (sum(node.cpu for node in nodes), sum(node.gpus * 100.0 for node in nodes))
    if cores > whole[0] + _TOLERANCE or gpu > whole[1] + _TOLERANCE:
        raise _Broken(FITS, f"{cores} cores and {gpu} % of GPUs of {whole}")


def _drawn(seed: int, functions: int) -> _Scenario:
    draw = random.Random(seed)  # noqa: S311  not for secrets
    views = tuple(_function(f"f{number}", draw) for number in range(functions))
    changing = [{view.name: _rate(draw) for view in views} for _ in range(draw.randrange(1, 8))]
    constant = [{view.name: _rate(draw) for view in views}] * _CONSTANT
    return _Scenario(views, tuple(_nodes(draw)), (*changing, *constant))


def _nodes(draw: random.Random) -> Iterator[Node]:
    for number in range(draw.choice((0, 1, 1, 3))):
        memory_mb = draw.choice((math.inf, 16384.0))
        yield Node(f"n{number}", draw.choice((2.0, 8.0, 32.0)), draw.randrange(3), memory_mb)


def _rate(draw: random.Random) -> float:
    return draw.choice((0.0, 0.01, 1.0, draw.uniform(0, 20), draw.uniform(0, 500)))


def _function(name: str, draw: random.Random) -> FunctionView:
    slo_s = draw.choice((0.02, 0.2, 1.0))
    apps = [AppLoad("all", slo_s, 0.0)]
    if draw.random() < 0.3:  # noqa: PLR2004  nearly a third
        apps.append(AppLoad("lax", 2 * slo_s, 0.0))
    most = draw.choice((None, None, 3))
    return FunctionView(
        name,
        drawn_model(draw),
        slo_s,
        draw.choice((0.9, 0.99)),
        draw.choice((1, 8, 32)),
        tuple(apps),
        min_instances=draw.choice((0, 0, 1)),
        max_instances=most,
    )
