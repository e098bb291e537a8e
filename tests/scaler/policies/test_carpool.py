"""The policy `carpool`: its proposals by billing rule, load and running instances."""

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
    """Return the policy behind a guard."""
    return guarded(build(resolve("scale", "carpool"), params))


def at(prices: Prices, *loads: FunctionLoad, now_s: float = 0.0) -> Snapshot:
    """Return a snapshot of these functions at these prices."""
    return Snapshot(now_s, loads, None, prices)


def carried_out(function: FunctionLoad, plan: Plan) -> FunctionLoad:
    """Return the function with its plan carried out."""
    there = {each.name: Instances(each.replicas) for each in plan.classes}
    return dataclasses.replace(function, plan=plan, instances=there)


def price(plan: Plan) -> float:
    """Return the price of all instances per second."""
    return sum(each.replicas * (9e-5 * each.cpu + 7e-6 * each.gpu) for each in plan.classes)


@pytest.mark.parametrize("prices", [RESERVED, BY_USE, Prices()])
@pytest.mark.parametrize("rate_rps", [0.0, 0.5, 20.0, 300.0, 5000.0])
def test_plan_has_capacity_for_rate(prices: Prices, rate_rps: float) -> None:
    """A plan has at least one instance and more capacity than the rate."""
    planning = carpool().plan(at(prices, load(rate_rps)))
    plan = planning.plans["classify"]
    assert planning.unplaced == {}
    assert sum(each.replicas * (each.rate_high or 0) for each in plan.classes) > rate_rps
    assert sum(each.replicas for each in plan.classes) >= 1


@pytest.mark.parametrize("rate_rps", [80.0, 400.0, 2000.0])
def test_plan_costs_at_most_as_much_as_other_policies(rate_rps: float) -> None:
    """At a constant load the plan costs at most 1 % more than those of other policies."""
    shown = at(RESERVED, load(rate_rps, model=GPU, slo_s=0.22))
    own = price(carpool().plan(shown).plans["classify"])
    for name in ("infless", "infaas"):
        other = guarded(build(resolve("scale", name), {})).plan(shown).plans["classify"]
        assert own <= 1.01 * price(other)


def test_batches_do_not_wait_under_reserved_billing() -> None:
    """Under reserved billing, batches do not wait, as an idle instance would cost the same."""
    plan = carpool().plan(at(RESERVED, load(300.0, slo_s=0.5))).plans["classify"]
    assert all(route.max_wait_s == 0 for route in plan.routes)


def test_longer_objectives_do_not_wait_under_reserved_billing() -> None:
    """Under reserved billing, requests with a longer objective do not wait either."""
    shown = load(300.0, slo_s=0.5)
    lax = Application("mail", 2.0, 10.0)
    function = dataclasses.replace(shown, apps=(*shown.apps, lax))
    plan = carpool().plan(at(RESERVED, function)).plans["classify"]
    assert all(route.max_wait_s == 0 for route in plan.routes)


def test_predicted_cost_is_that_of_expected_batches() -> None:
    """Predicted cost is that of the expected batches, which are not full at low rates."""
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


def test_batches_wait_under_pay_per_use_billing() -> None:
    """Under pay-per-use billing, batches wait within the objective, with ample instances."""
    plan = carpool().plan(at(BY_USE, load(100.0))).plans["classify"]
    (each,) = plan.classes
    assert each.batch_size > 1
    (route,) = plan.routes
    assert 0.05 < route.max_wait_s < 0.2 - (each.exec_s or 0)
    assert each.replicas * (each.rate_high or 0) >= 200.0


def test_free_idle_instances_stay_after_peak() -> None:
    """If idle instances are free, they stay for a quarter of an hour after a peak."""
    policy = carpool()
    high = policy.plan(at(BY_USE, load(400.0))).plans["classify"]
    function = carried_out(load(10.0), high)
    later = policy.plan(at(BY_USE, function, now_s=600.0)).plans["classify"]
    assert counts(later).total() == counts(high).total()
    last = policy.plan(at(BY_USE, function, now_s=1600.0)).plans["classify"]
    assert counts(last).total() < counts(high).total()


def test_idle_instances_are_of_the_size_that_is_cheapest_when_full() -> None:
    """Without load all batches cost the same; instances wait for the next burst, whose fill."""
    (each,) = carpool().plan(at(BY_USE, load(0.0, model=GPU, slo_s=0.11))).plans["classify"].classes
    assert each.batch_size > 1
    assert each.replicas >= 8


@pytest.mark.parametrize("prices", [RESERVED, BY_USE])
def test_unchanged_load_keeps_plan_object(prices: Prices) -> None:
    """An unchanged load keeps the same plan object."""
    policy = carpool()
    plan = policy.plan(at(prices, load(150.0))).plans["classify"]
    for number in range(1, 20):
        function = carried_out(load(150.0), plan)
        again = policy.plan(at(prices, function, now_s=number / 2)).plans["classify"]
        assert again is plan


def test_running_sizes_are_kept_unless_change_pays() -> None:
    """With ``gain: 0`` the cheapest sizes are chosen; with a large gain, running sizes stay."""
    first = carpool().plan(at(RESERVED, load(0.5, model=GPU))).plans["classify"]
    function = carried_out(load(600.0, model=GPU), first)
    kept = carpool(gain=1e6).plan(at(RESERVED, function)).plans["classify"]
    assert set(counts(kept)) == set(counts(first))
    free = carpool(gain=0.0).plan(at(RESERVED, function)).plans["classify"]
    assert price(free) < price(kept)


def test_rate_without_room_is_unplaced() -> None:
    """On full servers the plan uses the room there is, and the rest of the rate is unplaced."""
    planning = carpool().plan(snapshot(load(2000.0), cluster=servers(1, cpu=8.0, gpus=0)))
    assert 0 < planning.unplaced["classify"] < 2000.0
    assert counts(planning.plans["classify"]).total() >= 1


def test_plan_stays_within_maximum() -> None:
    """The plan stays within the maximum, without a note of the guard."""
    policy = carpool()
    planning = policy.plan(at(RESERVED, load(3000.0, bounds=(0, 4))))
    assert counts(planning.plans["classify"]).total() <= 4
    assert planning.notes == {}


def test_plan_is_explained_with_figures() -> None:
    """The explanation has figures that an operator can check."""
    (first, *_) = carpool().plan(at(RESERVED, load(300.0))).plans["classify"].explain
    assert first.startswith("300 requests/s within 200 ms: ")
    (said,) = carpool().plan(at(BY_USE, load(300.0))).plans["classify"].explain
    assert "billed per execution" in said


def test_unreachable_objective_gives_no_proposal() -> None:
    """If nothing responds in time, nothing is proposed."""
    assert carpool().plan(at(RESERVED, load(10.0, slo_s=0.001))).plans == {}


@pytest.mark.parametrize(
    ("params", "said"), [({"reserve": -1.0}, "reserve"), ({"spare": 0.5}, "spare")]
)
def test_invalid_parameters_are_refused(params: dict[str, float], said: str) -> None:
    """Invalid parameters are refused with an error that names them."""
    with pytest.raises(ConfigError, match=said):
        carpool(**params)


@pytest.mark.parametrize("rate_rps", [5.0, 60.0, 500.0])
def test_filled_batches_agree_with_random_arrivals(rate_rps: float) -> None:
    """Mean batch and cost of a request agree with those of randomly drawn arrivals."""
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


def test_executions_may_exceed_half_objective() -> None:
    """Executions may exceed half the objective, as another instance is free before they end."""
    function = dataclasses.replace(load(10.0, slo_s=0.1), error=0.0)
    assert any(o.size.batch > 1 and 2 * o.size.exec_s > 0.1 for o in options(function))
    assert CLASSIFIER.predict(2, 2.0, 10.0) == 0.070


def test_old_instances_serve_until_cheaper_size_is_ready() -> None:
    """If idle instances are free, old ones serve until enough of a cheaper size are ready."""
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
