"""BATCH: one size, batch and window, the cheapest in time or the quickest within a budget."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING

import pytest

from carpool.errors import ConfigError
from carpool.latency import Configuration
from carpool.latency.linear import Linear
from carpool.latency.table import Table
from carpool.plugins import build, resolve
from carpool.scaling import Application, Instances
from carpool.testing import check_scale_policy
from scaler.arrivals.markov import mmpp2
from scaler.arrivals.processes import Poisson, timestamps
from scaler.planning.cost import Prices
from scaler.planning.snapshot import Snapshot
from scaler.policies.batch.batch_law import BatchLaw, Service
from tests.scaler.loads import counts, guarded, load, servers

if TYPE_CHECKING:
    from carpool.plan import Plan
    from carpool.scaling import FunctionLoad
    from scaler.arrivals.processes import ArrivalProcess
    from scaler.control.guard import Guard
    from scaler.control.planning_result import PlanningResult
    from scaler.planning.placement import Cluster

PAID_BY_USE = Prices(cpu_core_s=1e-4, gpu_percent_s=1e-5, call=1e-6)
QUICK = Linear(0.05, 0.005, cpu=2.0, load_s=2.0)


def batch(**params: object) -> Guard:
    """The policy with these parameters, behind a guard."""
    return guarded(build(resolve("scale", "batch"), params))


def bursty(function: FunctionLoad, process: ArrivalProcess) -> FunctionLoad:
    """The function with requests that are known to come so."""
    app = Application("web", function.slo_s, process.mean_rate, process)
    return dataclasses.replace(function, apps=(app,))


def planned(
    policy: Guard,
    function: FunctionLoad,
    prices: Prices = PAID_BY_USE,
    cluster: Cluster | None = None,
) -> PlanningResult:
    """One round."""
    return policy.plan(Snapshot(0.0, (function,), cluster, prices))


def following(function: FunctionLoad, plan: Plan, rate_rps: float) -> FunctionLoad:
    """The function as it is once a plan is carried out, at another rate."""
    there = {kind.name: Instances(ready=kind.replicas) for kind in plan.classes}
    apps = tuple(dataclasses.replace(app, rate_rps=rate_rps) for app in function.apps)
    return dataclasses.replace(function, plan=plan, instances=there, apps=apps)


def test_the_plan_meets_the_objective_by_the_exact_law() -> None:
    """With the batch and window that it says, 99 of 100 are in time; wider is too late."""
    plan = planned(batch(), load(40, model=QUICK)).plans["classify"]
    (kind,), (route,) = plan.classes, plan.routes
    assert "batch" == plan.policy
    assert 1 < kind.batch_size
    service = Service.fixed([QUICK.predict(n, 2.0, 0.0) or 0.0 for n in range(1, 33)])

    def late(window_s: float) -> float:
        return float(BatchLaw(Poisson(40), kind.batch_size, window_s).late([0.2], service)[0])

    assert late(route.max_wait_s) <= 0.01 < late(route.max_wait_s + 0.01)


def test_predictions_are_those_of_the_law() -> None:
    """Mean batch, quantiles and cost are in the plan."""
    plan = planned(batch(), load(40, model=QUICK)).plans["classify"]
    law = BatchLaw(Poisson(40), plan.classes[0].batch_size, plan.routes[0].max_wait_s)
    predicted = plan.predicted
    assert pytest.approx(law.mean_size, rel=0.01) == predicted.mean_batch
    exec_s = sum(share * (0.05 + 0.005 * n) for n, share in enumerate(law.sizes, 1))
    expected = (exec_s * 2e-4 + 1e-6) / law.mean_size
    assert pytest.approx(expected, rel=0.01) == predicted.cost_per_request
    quantiles = predicted.latency_s
    assert quantiles.p50 is not None
    assert quantiles.p95 is not None
    assert quantiles.p99 is not None
    assert quantiles.p50 < quantiles.p95 <= quantiles.p99 <= 0.201
    assert predicted.slo_miss_ratio is not None
    assert predicted.slo_miss_ratio <= 0.01


def test_explained() -> None:
    """Rate, objective, batch, window, instances and cost are in a sentence."""
    plan = planned(batch(), load(40, model=QUICK)).plans["classify"]
    sentence = plan.explain[0]
    assert "40 requests/s, 0.99 of them within 200 ms" in sentence
    assert f"batches of up to {plan.classes[0].batch_size}" in sentence


def test_larger_sizes_for_higher_rates() -> None:
    """And costs of a request that fall."""
    rates = (1, 10, 100, 1000)
    plans = [planned(batch(), load(rate, model=QUICK)).plans["classify"] for rate in rates]
    costs = [plan.predicted.cost_per_request or 0.0 for plan in plans]
    assert sorted(costs, reverse=True) == costs
    assert costs[-1] < costs[0] / 3


def test_bursty_arrivals_are_planned_for_as_such() -> None:
    """Instances for the busy phase, and another window than Poisson arrivals of the mean get."""
    process = mmpp2((10, 600), (0.05, 0.05))
    known = planned(batch(), bursty(load(305, model=QUICK), process)).plans["classify"]
    unknown = planned(batch(), load(305, model=QUICK)).plans["classify"]
    assert known.routes != unknown.routes
    assert "They are planned as MMPP(2) at 305/s" in known.explain[1]
    assert known.classes[0].replicas > unknown.classes[0].replicas


@pytest.mark.slow
def test_bursts_are_learned_from_the_rates_of_rounds() -> None:
    """After enough of them the plan is that of a process that is known, and rests."""
    policy, rounds = batch(learn=30, windows=32), 120
    times = timestamps(mmpp2((10, 120), (0.05, 0.05)), 10.0 * rounds, seed=1)
    function = load(65, model=QUICK)
    plans = []
    for number in range(rounds):
        came = ((times >= 10.0 * (number - 1)) & (times < 10.0 * number)).sum() or 1
        apps = (Application("web", 0.2, float(came) / 10),)
        function = dataclasses.replace(function, apps=apps)
        snapshot = Snapshot(10.0 * number, (function,), None, PAID_BY_USE)
        plans.append(policy.plan(snapshot).plans["classify"])
        function = following(function, plans[-1], 65)
    early = [earlier != later for earlier, later in itertools.pairwise(plans[:30])]
    late = [earlier != later for earlier, later in itertools.pairwise(plans[-40:])]
    assert sum(early) > 5
    assert sum(late) <= 4
    assert (plans[-1].predicted.slo_miss_ratio or 0) <= 0.01


def test_the_second_problem() -> None:
    """The more a request may cost, the sooner it is answered; never dearer than allowed."""
    cheapest = planned(batch(), load(40, model=QUICK)).plans["classify"]
    least = cheapest.predicted.cost_per_request
    assert least is not None
    latencies = []
    for times in (1.05, 1.5, 2.0, 4.0):
        plan = planned(batch(budget=least * times), load(40, model=QUICK)).plans["classify"]
        assert (plan.predicted.cost_per_request or 1) <= least * times
        latencies.append(plan.predicted.latency_s.p99 or math.inf)
    assert sorted(latencies, reverse=True) == latencies
    assert pytest.approx(0.055, rel=0.05) == latencies[-1]


def test_a_budget_below_every_cost() -> None:
    """Is said to be one, with the least that a request costs."""
    planning = planned(batch(budget=1e-9), load(40, model=QUICK))
    assert {"classify": 40} == planning.unplaced
    (sentence,) = planning.plans["classify"].explain
    assert "A budget of 1e-09 for a request is below the" in sentence
    assert 0 == planning.plans["classify"].classes[0].replicas


def test_an_objective_below_the_fastest_execution() -> None:
    """Is said to be one, with the fastest execution."""
    planning = planned(batch(), load(40, model=QUICK, slo_s=0.05))
    assert {"classify": 40} == planning.unplaced
    (sentence,) = planning.plans["classify"].explain
    assert "No size meets 50 ms for 0.99 of the requests" in sentence
    assert "takes 55 ms" in sentence


@pytest.mark.parametrize("rate", [0.0, 1e-4, 1e5])
@pytest.mark.parametrize("budget", [None, 10.0])
@pytest.mark.parametrize("billing", ["pay-per-use", "reserved"])
def test_extreme_rates(rate: float, budget: float | None, billing: str) -> None:
    """Every number of the plan is one, and all of the rate is taken."""
    prices = dataclasses.replace(PAID_BY_USE, billing=billing)
    planning = planned(batch(budget=budget), load(rate, model=QUICK), prices)
    plan = planning.plans["classify"]
    assert {} == planning.unplaced
    taken = sum(kind.replicas * (kind.rate_high or 0) for kind in plan.classes)
    assert taken >= rate
    assert "nan" not in plan.to_json().lower()


def test_without_a_load_nothing_runs() -> None:
    """But the class to start when a request comes is named; with a request waiting, one runs."""
    idle = load(0.0, model=QUICK)
    assert 0 == planned(batch(), idle).plans["classify"].classes[0].replicas
    waiting = dataclasses.replace(idle, queued=1)
    assert 1 == planned(batch(), waiting).plans["classify"].classes[0].replicas


def test_a_plan_stays_while_another_is_hardly_better() -> None:
    """A rate a little higher changes nothing; one ten times as high does."""
    policy, function = batch(), load(40, model=QUICK)
    plan = planned(policy, function).plans["classify"]
    there = following(function, plan, 40)
    assert plan is planned(policy, there).plans["classify"]
    near = planned(policy, following(function, plan, 41)).plans["classify"]
    assert plan.routes == near.routes
    far = planned(policy, following(function, plan, 400)).plans["classify"]
    assert plan.routes != far.routes
    assert far.version == plan.version + 1


def test_loading_has_to_pay() -> None:
    """A change of size that would pay in an hour does not in a second."""
    function = load(40, model=dataclasses.replace(QUICK, load_s=600.0))
    plan = planned(batch(), function).plans["classify"]
    there = following(function, plan, 150)
    hour, second = batch(amortised_s=1e9, gain=0.0), batch(amortised_s=1.0, gain=0.0)
    changed = planned(hour, there).plans["classify"]
    kept = planned(second, there).plans["classify"]
    assert plan.classes[0].batch_size != changed.classes[0].batch_size
    assert plan.classes[0].batch_size == kept.classes[0].batch_size
    assert any("too little for a change" in sentence for sentence in kept.explain)


def test_what_no_longer_meets_the_objective_is_changed() -> None:
    """Whatever a change costs."""
    function = load(40, model=dataclasses.replace(QUICK, load_s=600.0))
    plan = planned(batch(), function).plans["classify"]
    tight = dataclasses.replace(following(function, plan, 40), slo_s=0.1)
    tight = dataclasses.replace(tight, apps=(dataclasses.replace(tight.apps[0], slo_s=0.1),))
    changed = planned(batch(amortised_s=1.0), tight).plans["classify"]
    assert changed.routes[0].max_wait_s < 0.1
    assert (changed.predicted.slo_miss_ratio or 0) <= 0.01


@pytest.mark.parametrize("objective_s", [0.06, 0.12])
@pytest.mark.parametrize("rate", [0.05, 0.5, 2.0, 10.0, 40.0])
def test_a_window_that_just_fits_takes_no_endless_number(objective_s: float, rate: float) -> None:
    """Window and execution together are the objective to the last digit, or nearly."""
    times_ms = {1: 24, 2: 30, 4: 42, 8: 66, 16: 114}
    table = Table({Configuration(k, 2.0, 0.0): ms / 1000 for k, ms in times_ms.items()}, 2.0)
    plan = planned(batch(), load(rate, model=table, slo_s=objective_s)).plans["classify"]
    assert 1 <= counts(plan).total() <= 20


def test_the_cheapest_size_of_instance() -> None:
    """Of all that the table has; with other prices another."""
    cheap_gpu = Prices(cpu_core_s=1e-3, gpu_percent_s=1e-6)
    dear_gpu = Prices(cpu_core_s=1e-6, gpu_percent_s=1e-3)
    first = planned(batch(), load(50), cheap_gpu).plans["classify"].classes[0]
    second = planned(batch(), load(50), dear_gpu).plans["classify"].classes[0]
    assert first.gpu > second.gpu


def test_where_there_is_no_room_another_size_is_taken_or_the_rest_said() -> None:
    """Four cores hold two of the small ones, or one large."""
    planning = planned(batch(), load(500), cluster=servers(1, 4, 1))
    taken = sum(k.replicas * (k.rate_high or 0) for k in planning.plans["classify"].classes)
    assert counts(planning.plans["classify"]).total() >= 1
    assert pytest.approx(500) == taken + planning.unplaced["classify"]


def test_bounds() -> None:
    """No more instances than allowed, and no fewer."""
    few = planned(batch(), load(500, model=QUICK, bounds=(0, 2))).plans["classify"]
    assert 2 == few.classes[0].replicas
    many = planned(batch(), load(1, model=QUICK, bounds=(7, None))).plans["classify"]
    assert 7 == many.classes[0].replicas


def test_one_route_for_all_applications() -> None:
    """With the tightest objective."""
    function = load(40, model=QUICK)
    apps = (Application("web", 0.2, 30), Application("lax", 0.6, 10))
    plan = planned(batch(), dataclasses.replace(function, apps=apps)).plans["classify"]
    alone = planned(batch(), function).plans["classify"]
    assert ["*"] == [route.app for route in plan.routes]
    assert pytest.approx(alone.routes[0].max_wait_s, abs=0.004) == plan.routes[0].max_wait_s


def test_applications_that_together_send_the_same_are_planned_for_alike() -> None:
    """What is searched for is the load of all: a shift between two of them changes nothing."""
    policy, function = batch(), load(40, model=QUICK)
    shares = [(30.0, 10.0), (10.0, 30.0), (39.0, 1.0)]
    plans = [
        planned(
            policy,
            dataclasses.replace(
                function, apps=(Application("a", 0.2, one), Application("b", 0.2, two))
            ),
        ).plans["classify"]
        for one, two in shares
    ]
    assert plans[0].classes == plans[1].classes == plans[2].classes
    assert plans[0].predicted == planned(batch(), function).plans["classify"].predicted


@pytest.mark.slow
def test_it_keeps_every_promise() -> None:
    """Of a scaling policy."""
    check_scale_policy("batch", {"windows": 32}, scenarios=6)


@pytest.mark.parametrize(
    "params",
    [
        {"budget": 0.0},
        {"reserve": 1.0},
        {"windows": 0},
        {"windows": 5000},
        {"gain": -0.1},
        {"amortised_s": 0.0},
        {"learn": 10},
    ],
)
def test_parameters_are_checked(params: dict[str, object]) -> None:
    """What cannot be is refused by name."""
    with pytest.raises(ConfigError, match=next(iter(params))):
        batch(**params)
