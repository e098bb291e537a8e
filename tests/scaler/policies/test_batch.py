"""BATCH: one size, batch and window, the cheapest in time or the fastest within a budget."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING

import pytest

from carpool.arrivals.markov import mmpp2
from carpool.arrivals.processes import Poisson, timestamps
from carpool.errors import ConfigError
from carpool.latency import Configuration
from carpool.latency.linear import Linear
from carpool.latency.table import Table
from carpool.plugins import build, resolve
from carpool.scaling import Application, Instances, PhaseRates
from carpool.testing import check_scale_policy
from scaler.planning.cost import Prices
from scaler.planning.snapshot import Snapshot
from scaler.policies.batch.batch_law import BatchLaw, Service
from tests.scaler.loads import counts, guarded, load, servers

if TYPE_CHECKING:
    from carpool.plan import Plan
    from carpool.scaling import Arrivals, FunctionLoad
    from scaler.control.guard import Guard
    from scaler.control.planning_result import PlanningResult
    from scaler.planning.placement import Cluster

PAID_BY_USE = Prices(cpu_core_s=1e-4, gpu_percent_s=1e-5, call=1e-6)
QUICK = Linear(0.05, 0.005, cpu=2.0, load_s=2.0)


def batch(**params: object) -> Guard:
    """Return the policy with these parameters, behind a guard."""
    return guarded(build(resolve("scale", "batch"), params))


def bursty(function: FunctionLoad, process: Arrivals) -> FunctionLoad:
    """Return the function with arrivals of a known process."""
    app = Application("web", function.slo_s, process.mean_rate, process)
    return dataclasses.replace(function, apps=(app,))


def planned(
    policy: Guard,
    function: FunctionLoad,
    prices: Prices = PAID_BY_USE,
    cluster: Cluster | None = None,
) -> PlanningResult:
    """Return the result of one round."""
    return policy.plan(Snapshot(0.0, (function,), cluster, prices))


def following(function: FunctionLoad, plan: Plan, rate_rps: float) -> FunctionLoad:
    """Return the function after a plan is carried out, at another rate."""
    there = {kind.name: Instances(ready=kind.replicas) for kind in plan.classes}
    apps = tuple(dataclasses.replace(app, rate_rps=rate_rps) for app in function.apps)
    return dataclasses.replace(function, plan=plan, instances=there, apps=apps)


def test_the_plan_meets_the_objective_by_the_exact_law() -> None:
    """With the planned window 99 of 100 requests are in time; with a longer one fewer are."""
    plan = planned(batch(), load(40, model=QUICK)).plans["classify"]
    (kind,), (route,) = plan.classes, plan.routes
    assert "batch" == plan.policy
    assert 1 < kind.batch_size
    service = Service.fixed([QUICK.predict(n, 2.0, 0.0) or 0.0 for n in range(1, 33)])

    def late(window_s: float) -> float:
        return float(BatchLaw(Poisson(40), kind.batch_size, window_s).late([0.2], service)[0])

    assert late(route.max_wait_s) <= 0.01 < late(route.max_wait_s + 0.01)


def test_predictions_agree_with_exact_law() -> None:
    """The plan has the mean batch, latency quantiles and cost of the exact law."""
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


def test_plan_is_explained() -> None:
    """Rate, objective and batch are explained in a sentence."""
    plan = planned(batch(), load(40, model=QUICK)).plans["classify"]
    sentence = plan.explain[0]
    assert "40 requests/s, 0.99 of them within 200 ms" in sentence
    assert f"batches of up to {plan.classes[0].batch_size}" in sentence


def test_cost_per_request_falls_with_rate() -> None:
    """The cost of a request falls as the rate rises."""
    rates = (1, 10, 100, 1000)
    plans = [planned(batch(), load(rate, model=QUICK)).plans["classify"] for rate in rates]
    costs = [plan.predicted.cost_per_request or 0.0 for plan in plans]
    assert sorted(costs, reverse=True) == costs
    assert costs[-1] < costs[0] / 3


def test_bursty_arrivals_change_plan() -> None:
    """Bursty arrivals get instances for the busy phase and another window than Poisson arrivals."""
    process = mmpp2((10, 600), (0.05, 0.05))
    known = planned(batch(), bursty(load(305, model=QUICK), process)).plans["classify"]
    unknown = planned(batch(), load(305, model=QUICK)).plans["classify"]
    assert known.routes != unknown.routes
    assert "They are planned as MMPP(2) at 305/s" in known.explain[1]
    assert known.classes[0].replicas > unknown.classes[0].replicas


@dataclasses.dataclass(frozen=True)
class Foreign:
    """Bursty arrivals as another package may describe them."""

    phase_rates: PhaseRates
    mean_rate: float


def test_arrivals_of_another_package_count_as_well() -> None:
    """Arrivals are planned for by their rates in each phase, whatever class describes them."""
    process = mmpp2((10, 600), (0.05, 0.05))
    both: tuple[Arrivals, ...] = (process, Foreign(process.phase_rates, process.mean_rate))
    plans = [
        planned(batch(), bursty(load(305, model=QUICK), arrivals)).plans["classify"]
        for arrivals in both
    ]
    assert plans[0] == plans[1]


@pytest.mark.slow
def test_bursts_are_learned_from_round_rates() -> None:
    """After enough rounds of bursty arrivals the plan hardly changes and meets the objective."""
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


def test_latency_is_minimized_within_budget() -> None:
    """A larger budget gives lower latencies, and no request costs more than the budget."""
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


def test_too_low_budget_is_explained() -> None:
    """A budget too low for any request is explained with the lowest possible cost."""
    planning = planned(batch(budget=1e-9), load(40, model=QUICK))
    assert {"classify": 40} == planning.unplaced
    (sentence,) = planning.plans["classify"].explain
    assert "A budget of 0.000000001 for a request is below the" in sentence
    assert 0 == planning.plans["classify"].classes[0].replicas


def test_objective_below_fastest_execution_is_explained() -> None:
    """An objective too short for any execution is explained with the fastest one."""
    planning = planned(batch(), load(40, model=QUICK, slo_s=0.05))
    assert {"classify": 40} == planning.unplaced
    (sentence,) = planning.plans["classify"].explain
    assert "No size meets 50 ms for 0.99 of the requests" in sentence
    assert "takes 55 ms" in sentence


@pytest.mark.parametrize("rate", [0.0, 1e-4, 1e5])
@pytest.mark.parametrize("budget", [None, 10.0])
@pytest.mark.parametrize("billing", ["pay-per-use", "reserved"])
def test_extreme_rates(rate: float, budget: float | None, billing: str) -> None:
    """At extreme rates a plan has no NaN, and serves all of the rate."""
    prices = dataclasses.replace(PAID_BY_USE, billing=billing)
    planning = planned(batch(budget=budget), load(rate, model=QUICK), prices)
    plan = planning.plans["classify"]
    assert {} == planning.unplaced
    taken = sum(kind.replicas * (kind.rate_high or 0) for kind in plan.classes)
    assert taken >= rate
    assert "nan" not in plan.to_json().lower()


def test_no_instances_without_load() -> None:
    """Without load no instance runs but a class is named; a waiting request starts one."""
    idle = load(0.0, model=QUICK)
    assert 0 == planned(batch(), idle).plans["classify"].classes[0].replicas
    waiting = dataclasses.replace(idle, queued=1)
    assert 1 == planned(batch(), waiting).plans["classify"].classes[0].replicas


def test_plan_is_kept_unless_another_is_clearly_better() -> None:
    """A slightly higher rate keeps the routes, and a tenfold rate changes them."""
    policy, function = batch(), load(40, model=QUICK)
    plan = planned(policy, function).plans["classify"]
    there = following(function, plan, 40)
    assert plan is planned(policy, there).plans["classify"]
    near = planned(policy, following(function, plan, 41)).plans["classify"]
    assert plan.routes == near.routes
    far = planned(policy, following(function, plan, 400)).plans["classify"]
    assert plan.routes != far.routes
    assert far.version == plan.version + 1


def test_size_changes_only_if_savings_pay_for_loading() -> None:
    """The size changes only if the savings over ``amortised_s`` pay for loading."""
    function = load(40, model=dataclasses.replace(QUICK, load_s=600.0))
    plan = planned(batch(), function).plans["classify"]
    there = following(function, plan, 150)
    hour, second = batch(amortised_s=1e9, gain=0.0), batch(amortised_s=1.0, gain=0.0)
    changed = planned(hour, there).plans["classify"]
    kept = planned(second, there).plans["classify"]
    assert plan.classes[0].batch_size != changed.classes[0].batch_size
    assert plan.classes[0].batch_size == kept.classes[0].batch_size
    assert any("too little for a change" in sentence for sentence in kept.explain)


def test_plan_that_misses_objective_is_changed() -> None:
    """A plan that no longer meets the objective changes whatever the change costs."""
    function = load(40, model=dataclasses.replace(QUICK, load_s=600.0))
    plan = planned(batch(), function).plans["classify"]
    tight = dataclasses.replace(following(function, plan, 40), slo_s=0.1)
    tight = dataclasses.replace(tight, apps=(dataclasses.replace(tight.apps[0], slo_s=0.1),))
    changed = planned(batch(amortised_s=1.0), tight).plans["classify"]
    assert changed.routes[0].max_wait_s < 0.1
    assert (changed.predicted.slo_miss_ratio or 0) <= 0.01


@pytest.mark.parametrize("objective_s", [0.06, 0.12])
@pytest.mark.parametrize("rate", [0.05, 0.5, 2.0, 10.0, 40.0])
def test_window_that_just_fits_needs_few_instances(objective_s: float, rate: float) -> None:
    """A window that just fits the objective needs no excessive number of instances."""
    times_ms = {1: 24, 2: 30, 4: 42, 8: 66, 16: 114}
    table = Table({Configuration(k, 2.0, 0.0): ms / 1000 for k, ms in times_ms.items()}, 2.0)
    plan = planned(batch(), load(rate, model=table, slo_s=objective_s)).plans["classify"]
    assert 1 <= counts(plan).total() <= 20


def test_cheapest_instance_size_is_chosen() -> None:
    """The cheapest size of the table is chosen, which depends on the prices."""
    cheap_gpu = Prices(cpu_core_s=1e-3, gpu_percent_s=1e-6)
    dear_gpu = Prices(cpu_core_s=1e-6, gpu_percent_s=1e-3)
    first = planned(batch(), load(50), cheap_gpu).plans["classify"].classes[0]
    second = planned(batch(), load(50), dear_gpu).plans["classify"].classes[0]
    assert first.gpu > second.gpu


def test_rate_without_room_is_unplaced() -> None:
    """With little room, the part of the rate that instances cannot serve is unplaced."""
    planning = planned(batch(), load(500), cluster=servers(1, 4, 1))
    taken = sum(k.replicas * (k.rate_high or 0) for k in planning.plans["classify"].classes)
    assert counts(planning.plans["classify"]).total() >= 1
    assert pytest.approx(500) == taken + planning.unplaced["classify"]


def test_bounds() -> None:
    """The number of instances is within the minimum and maximum."""
    few = planned(batch(), load(500, model=QUICK, bounds=(0, 2))).plans["classify"]
    assert 2 == few.classes[0].replicas
    many = planned(batch(), load(1, model=QUICK, bounds=(7, None))).plans["classify"]
    assert 7 == many.classes[0].replicas


def test_one_route_for_all_applications() -> None:
    """All applications share one route, with the tightest objective."""
    function = load(40, model=QUICK)
    apps = (Application("web", 0.2, 30), Application("lax", 0.6, 10))
    plan = planned(batch(), dataclasses.replace(function, apps=apps)).plans["classify"]
    alone = planned(batch(), function).plans["classify"]
    assert ["*"] == [route.app for route in plan.routes]
    assert pytest.approx(alone.routes[0].max_wait_s, abs=0.004) == plan.routes[0].max_wait_s


def test_plan_depends_only_on_total_rate_of_applications() -> None:
    """Only the total load matters: a shift between applications does not change the plan."""
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
def test_batch_passes_policy_checks() -> None:
    """The policy passes the checks for scaling policies."""
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
    """Invalid parameters are refused with an error that names them."""
    with pytest.raises(ConfigError, match=next(iter(params))):
        batch(**params)
