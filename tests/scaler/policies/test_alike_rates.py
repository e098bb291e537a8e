"""Results that policies reuse for similar rates: slow drift is noticed, and objectives hold."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from carpool.arrivals.processes import Poisson
from carpool.latency.linear import Linear
from carpool.plugins import build, resolve
from scaler.planning.cost import Prices
from scaler.planning.snapshot import Snapshot
from scaler.policies.batch import policy as batch_policy
from scaler.policies.batch.batch_law import BatchLaw, Service
from scaler.policies.batch.task import BatchTask
from scaler.policies.common.alike import alike
from scaler.policies.harmonybatch.grouped_plan import groups_in
from scaler.policies.harmonybatch.provisioning import Provisioner, members_of
from scaler.testing import Rounds
from tests.scaler.loads import guarded, load
from tests.scaler.vgg19 import CASES, PRICES, vgg19_load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from carpool.arrivals.map_counts import Markovian
    from carpool.plan import Plan
    from scaler.policies.harmonybatch.settling import Group, Member

PAID_BY_USE = Prices(cpu_core_s=1e-4, gpu_percent_s=1e-5, call=1e-6)
QUICK = Linear(0.05, 0.005, cpu=2.0, load_s=2.0)
ROUNDS = 20
ROUNDING = 0.005  # of rates, to neighbours that are a percent apart


def test_rates_are_alike_within_two_percent() -> None:
    """Rates within 2 % of the planned one are alike; 0 is only like 0."""
    assert alike(98.0, 100.0)
    assert alike(102.0, 100.0)
    assert not alike(97.9, 100.0)
    assert not alike(102.1, 100.0)
    assert alike(0.0, 0.0)
    assert not alike(1.0, 0.0)


def _drift(step: float) -> Iterator[tuple[int, float]]:
    rate_rps = 40.0
    for number in range(ROUNDS):
        yield number, rate_rps
        rate_rps *= 1 + step


@pytest.mark.parametrize("step", [0.01, -0.01])
def test_batch_notices_slow_drift(step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every round is planned for about its own rate, though it differs little from the last one."""
    planned_rps: list[float] = []

    class Recorded(BatchTask):
        def __init__(self, aims: Any, load: Any, process: Markovian, sizes: Any) -> None:
            planned_rps.append(process.mean_rate)
            super().__init__(aims, load, process, sizes)

    monkeypatch.setattr(batch_policy, "BatchTask", Recorded)
    policy = guarded(build(resolve("scale", "batch"), {"learn": 0}))
    rounds = Rounds(policy, [load(40, model=QUICK)], prices=PAID_BY_USE)
    for number, rate_rps in _drift(step):
        plan = rounds.plan(60.0 * number, {"classify": rate_rps}).plans["classify"]
        assert pytest.approx(rate_rps, rel=0.02 + 2 * ROUNDING) == planned_rps[-1]
        assert _late(plan, rate_rps) <= 0.01
    assert 5 <= len(planned_rps) <= ROUNDS / 2


@pytest.mark.parametrize("rate_rps", [8.0, 40.0, 150.0, 600.0])
def test_batch_meets_the_objective_at_the_edges(
    rate_rps: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reused plan meets the objective at rates up to 2 % lower or higher."""
    policy = guarded(build(resolve("scale", "batch"), {"learn": 0}))
    rounds = Rounds(policy, [load(rate_rps, model=QUICK)], prices=PAID_BY_USE)
    rounds.plan(0.0, {"classify": rate_rps})
    monkeypatch.setattr(batch_policy, "BatchTask", pytest.fail)
    for number, factor in enumerate((0.9851, 1.0149)):  # of the rounded rate, below two percent
        edge_rps = rate_rps * factor
        plan = rounds.plan(60.0 * (number + 1), {"classify": edge_rps}).plans["classify"]
        assert _late(plan, edge_rps) <= 0.01


def _late(plan: Plan, rate_rps: float) -> float:
    """Return the share of requests late by the exact law, with instances always free."""
    service = Service.fixed([QUICK.predict(n, 2.0, 0.0) or 0.0 for n in range(1, 33)])
    (kind,), (route,) = plan.classes, plan.routes
    law = BatchLaw(Poisson(rate_rps), kind.batch_size, route.max_wait_s)
    return float(law.late([0.2], service)[0])


def test_batch_keeps_few_plans_for_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few results are kept per function; those for all loads would take half a gigabyte."""
    alive: weakref.WeakSet[BatchTask] = weakref.WeakSet()

    class Counted(BatchTask):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            alive.add(self)

    monkeypatch.setattr(batch_policy, "BatchTask", Counted)
    policy = guarded(build(resolve("scale", "batch"), {"learn": 0, "windows": 8}))
    functions = [load(10, model=QUICK, name=name) for name in ("a", "b", "c")]
    rounds = Rounds(policy, functions, prices=PAID_BY_USE)
    for number in range(8):
        rates_rps = {f.name: 10.0 * 1.1 ** (3 * number + at) for at, f in enumerate(functions)}
        rounds.plan(60.0 * number, rates_rps)
    assert len(alive) <= 2 * len(functions)


@pytest.mark.parametrize("step", [0.01, -0.01])
def test_harmonybatch_notices_slow_drift(step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every round is planned for about its own rates, though they differ little from the last."""
    planned_rps: list[float] = []
    groups = Provisioner.groups

    def recorded(
        self: Provisioner, members: Sequence[Member], *args: Any, **named: Any
    ) -> list[Group]:
        planned_rps.append(sum(member.rate_rps for member in members))
        return groups(self, members, *args, **named)

    monkeypatch.setattr(Provisioner, "groups", recorded)
    case = CASES["three"]
    policy = guarded(build(resolve("scale", "harmonybatch"), {"smoothing_s": 0.0}))
    rounds = Rounds(policy, [vgg19_load(case.slos_s, case.rates_rps)], prices=PRICES)
    for number, rate_rps in _drift(step):
        rounds.plan(60.0 * number, {"classify": rate_rps})
        assert pytest.approx(rate_rps, rel=0.021) == planned_rps[-1]
    assert 5 <= len(planned_rps) < 2 * ROUNDS / 3


@pytest.mark.parametrize("factor", [0.9801, 1.0199])
def test_harmonybatch_meets_objectives_at_the_edges(factor: float) -> None:
    """By the exact law, a plan meets its objectives at rates 2 % lower and higher."""
    case = CASES["three"]
    function = vgg19_load(case.slos_s, case.rates_rps)
    policy = guarded(build(resolve("scale", "harmonybatch"), {}))
    snapshot = Snapshot(0.0, (function,), None, PRICES)
    plan = policy.plan(snapshot).plans["classify"]
    seen = replace(function, prices=PRICES)
    provisioner = Provisioner(seen.model, seen.billing, seen.max_batch, 0.0075, 0.001)
    members = [
        replace(member, rate_rps=member.rate_rps * factor) for member in members_of(function.apps)
    ]
    groups = groups_in(plan, members, provisioner.settling)
    assert groups
    assert max(group.late for group in groups) <= 0.01
