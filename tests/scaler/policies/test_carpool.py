"""The policy `carpool`: what it proposes by billing rule, load and what runs."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from carpool.errors import ConfigError
from carpool.latency import Resources
from carpool.latency.linear import Linear
from carpool.plugins import build, resolve
from carpool.scaling import Application, FunctionLoad, Instances
from scaler.planning.cost import Prices, billing
from scaler.planning.snapshot import Snapshot
from scaler.policies.carpool.fill import Fills
from scaler.policies.carpool.options import options
from simulator.matrix.models import MODELS
from tests.scaler.loads import CLASSIFIER, counts, guarded, load, servers, snapshot

if TYPE_CHECKING:
    from carpool.plan import Plan
    from scaler.control.guard import Guard

GPU = MODELS["gpu"].latency
RESERVED = Prices("reserved", cpu_core_s=9e-5, gpu_percent_s=7e-6)
BY_USE = Prices("pay-per-use", cpu_core_s=9e-5, gpu_percent_s=7e-6, call=1e-6)


def carpool(**params: object) -> Guard:
    """The policy behind a guard."""
    return guarded(build(resolve("scale", "carpool"), params))


def at(prices: Prices, *loads: FunctionLoad, now_s: float = 0.0) -> Snapshot:
    """These functions, at these prices."""
    return Snapshot(now_s, loads, None, prices)


def carried_out(function: FunctionLoad, plan: Plan) -> FunctionLoad:
    """The function with its plan carried out."""
    there = {each.name: Instances(each.replicas) for each in plan.classes}
    return dataclasses.replace(function, plan=plan, instances=there)


def price(plan: Plan) -> float:
    """Of all instances, per second."""
    return sum(each.replicas * (9e-5 * each.cpu + 7e-6 * each.gpu) for each in plan.classes)


@pytest.mark.parametrize("prices", [RESERVED, BY_USE, Prices()])
@pytest.mark.parametrize("rate_rps", [0.0, 0.5, 20.0, 300.0, 5000.0])
def test_a_plan_takes_the_rate(prices: Prices, rate_rps: float) -> None:
    """With something to spare, and one instance at least."""
    planning = carpool().plan(at(prices, load(rate_rps)))
    plan = planning.plans["classify"]
    assert planning.unplaced == {}
    assert sum(each.replicas * (each.rate_high or 0) for each in plan.classes) > rate_rps
    assert sum(each.replicas for each in plan.classes) >= 1


@pytest.mark.parametrize("rate_rps", [80.0, 400.0, 2000.0])
def test_it_is_cheaper_than_the_others(rate_rps: float) -> None:
    """For a constant load, where each of them says that it is enough."""
    shown = at(RESERVED, load(rate_rps, model=GPU, slo_s=0.22))
    own = price(carpool().plan(shown).plans["classify"])
    for name in ("infless", "infaas"):
        other = guarded(build(resolve("scale", name), {})).plan(shown).plans["classify"]
        assert own <= 1.01 * price(other)


def test_no_request_waits_for_others_where_instances_are_paid_for() -> None:
    """An instance that is free would idle for the same price, where the objective is lax."""
    plan = carpool().plan(at(RESERVED, load(300.0, slo_s=0.5))).plans["classify"]
    assert all(route.max_wait_s == 0 for route in plan.routes)


def test_no_request_waits_for_others_with_a_laxer_objective() -> None:
    """What an application has more time for is no reason to leave an instance idle."""
    shown = load(300.0, slo_s=0.5)
    lax = Application("mail", 2.0, 10.0)
    function = dataclasses.replace(shown, apps=(*shown.apps, lax))
    plan = carpool().plan(at(RESERVED, function)).plans["classify"]
    assert all(route.max_wait_s == 0 for route in plan.routes)


def test_the_promised_cost_is_that_of_the_batches_that_come_about() -> None:
    """Few requests do not fill a batch, and a request of a small one costs more."""
    plan = carpool().plan(at(BY_USE, load(10.0))).plans["classify"]
    (each,) = plan.classes
    assert plan.predicted is not None
    mean_batch, cost = plan.predicted.mean_batch, plan.predicted.cost_per_request
    assert mean_batch is not None
    assert cost is not None
    assert 1 <= mean_batch < each.batch_size
    resources = Resources(each.cpu, each.gpu, each.memory_mb or 0.0)
    full = billing(BY_USE).execution(resources, each.exec_s or 0.0) / each.batch_size
    assert cost > 1.01 * full


def test_batches_fill_where_executions_are_paid_for() -> None:
    """A request waits for as long as its objective leaves, and what idles is plenty."""
    plan = carpool().plan(at(BY_USE, load(100.0))).plans["classify"]
    (each,) = plan.classes
    assert each.batch_size > 1
    (route,) = plan.routes
    assert 0.05 < route.max_wait_s < 0.2 - (each.exec_s or 0)
    assert each.replicas * (each.rate_high or 0) >= 200.0


def test_instances_stay_where_they_are_free() -> None:
    """After a peak for a quarter of an hour, and no longer."""
    policy = carpool()
    high = policy.plan(at(BY_USE, load(400.0))).plans["classify"]
    function = carried_out(load(10.0), high)
    later = policy.plan(at(BY_USE, function, now_s=600.0)).plans["classify"]
    assert counts(later).total() == counts(high).total()
    last = policy.plan(at(BY_USE, function, now_s=1600.0)).plans["classify"]
    assert counts(last).total() < counts(high).total()


@pytest.mark.parametrize("prices", [RESERVED, BY_USE])
def test_the_same_again_is_the_same_plan(prices: Prices) -> None:
    """Nothing changes while nothing changes."""
    policy = carpool()
    plan = policy.plan(at(prices, load(150.0))).plans["classify"]
    for number in range(1, 20):
        function = carried_out(load(150.0), plan)
        again = policy.plan(at(prices, function, now_s=number / 2)).plans["classify"]
        assert again is plan


def test_sizes_that_run_are_kept_unless_others_save() -> None:
    """With ``gain: 0`` the cheapest always, with a large one never others."""
    first = carpool().plan(at(RESERVED, load(0.5, model=GPU))).plans["classify"]
    function = carried_out(load(600.0, model=GPU), first)
    kept = carpool(gain=1e6).plan(at(RESERVED, function)).plans["classify"]
    assert set(counts(kept)) == set(counts(first))
    free = carpool(gain=0.0).plan(at(RESERVED, function)).plans["classify"]
    assert price(free) < price(kept)


def test_full_servers_say_what_is_unplaced() -> None:
    """What has room is there, and the rest of the rate has none."""
    planning = carpool().plan(snapshot(load(2000.0), cluster=servers(1, cpu=8.0, gpus=0)))
    assert 0 < planning.unplaced["classify"] < 2000.0
    assert counts(planning.plans["classify"]).total() >= 1


def test_bounds_are_kept() -> None:
    """No more than may be, and no complaint of the guard about it."""
    policy = carpool()
    planning = policy.plan(at(RESERVED, load(3000.0, bounds=(0, 4))))
    assert counts(planning.plans["classify"]).total() <= 4
    assert policy.notes == {}


def test_it_says_why() -> None:
    """In figures that an operator can check."""
    (first, *_) = carpool().plan(at(RESERVED, load(300.0))).plans["classify"].explain
    assert first.startswith("300 requests/s within 200 ms: ")
    (said,) = carpool().plan(at(BY_USE, load(300.0))).plans["classify"].explain
    assert "billed per execution" in said


def test_an_objective_out_of_reach_keeps_the_plan() -> None:
    """Nothing is proposed where nothing answers in time."""
    assert carpool().plan(at(RESERVED, load(10.0, slo_s=0.001))).plans == {}


@pytest.mark.parametrize(
    ("params", "said"), [({"reserve": -1.0}, "reserve"), ({"spare": 0.5}, "spare")]
)
def test_parameters_that_are_none(params: dict[str, float], said: str) -> None:
    """Are named."""
    with pytest.raises(ConfigError, match=said):
        carpool(**params)


@pytest.mark.parametrize("rate_rps", [5.0, 60.0, 500.0])
def test_filled_batches_against_drawn_ones(rate_rps: float) -> None:
    """Mean batch and cost of a request, over batches of random arrivals."""
    function = dataclasses.replace(
        load(rate_rps, model=Linear(0.02, 0.01), max_batch=8), prices=BY_USE, error=0.0
    )
    rule = billing(BY_USE)
    fills = Fills.of(options(function), 0.19, rule)
    chosen = max(fills.at(rate_rps), key=lambda each: fills.options[each.at].size.batch)
    option = fills.options[chosen.at]
    draw = random.Random(1)
    numbers, costs = [], 0.0
    for _ in range(20_000):
        number, at_s = 1, draw.expovariate(rate_rps)
        while number < option.size.batch and at_s <= chosen.window_s:
            number, at_s = number + 1, at_s + draw.expovariate(rate_rps)
        numbers.append(number)
        costs += rule.execution(option.size.resources, 0.02 + 0.01 * number)
    assert np.mean(numbers) == pytest.approx(chosen.mean_batch, rel=0.02)
    assert costs / sum(numbers) == pytest.approx(chosen.cost, rel=0.02)


def test_larger_batches_than_half_the_objective() -> None:
    """Of several instances one is free before an execution is over."""
    function = dataclasses.replace(load(10.0, slo_s=0.1), error=0.0)
    assert any(o.size.batch > 1 and 2 * o.size.exec_s > 0.1 for o in options(function))
    assert CLASSIFIER.predict(2, 2.0, 10.0) == 0.070


def test_another_size_serves_once_it_runs() -> None:
    """Where what idles is free, what runs serves on until enough of the cheaper size is ready."""
    policy = carpool()
    before = policy.plan(at(BY_USE, load(1.0, model=GPU))).plans["classify"]
    function = carried_out(load(400.0, model=GPU), before)
    both = policy.plan(at(BY_USE, function, now_s=1.0)).plans["classify"]
    (old,), new = set(counts(before)), set(counts(both)) - set(counts(before))
    assert len(new) == 1
    assert both.routes[0].weights == {old: 1.0}
    after = policy.plan(at(BY_USE, carried_out(function, both), now_s=2.0)).plans["classify"]
    assert after.routes[0].weights == {next(iter(new)): 1.0}
    assert set(counts(after)) == {old, *new}  # idle ones are free, and may pay again
    low = dataclasses.replace(carried_out(function, after), apps=load(1.0).apps)
    again = policy.plan(at(BY_USE, low, now_s=500.0)).plans["classify"]
    assert again.routes[0].weights == {old: 1.0}
    function = carried_out(function, after)
    last = policy.plan(at(BY_USE, function, now_s=2000.0)).plans["classify"]
    assert set(counts(last)) == new
