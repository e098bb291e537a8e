"""Plans for applications that share instances, their stability, and their simulated results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpool.arrivals.processes import Poisson
from carpool.errors import ConfigError
from carpool.latency.linear import Linear
from carpool.plugins import build, resolve
from carpool.scaling import Application, FunctionLoad, Instances
from carpool.testing import check_scale_policy
from scaler.planning.cost import Prices
from scaler.planning.snapshot import Snapshot
from scaler.scenarios.scenario import App, Function, Scenario
from scaler.testing import Rounds
from simulator.metrics import measured as metrics_of
from simulator.settings import Settings
from simulator.simulation import Simulation
from tests.effort import scaled
from tests.scaler.loads import CLASSIFIER, guarded, instances, servers
from tests.scaler.vgg19 import CASES, PRICES, vgg19, vgg19_load

if TYPE_CHECKING:
    from carpool.plan import Plan
    from scaler.control.guard import Guard

LINEAR = Linear(0.05, 0.01, load_s=2.0)
PAY = Prices(cpu_core_s=1e-4, call=1e-4)


def harmonybatch(**params: object) -> Guard:
    """Return the policy with these parameters, behind a guard."""
    return guarded(build(resolve("scale", "harmonybatch"), params))


def toy(*apps: tuple[float, float], **fields: object) -> FunctionLoad:
    """Return a function on the linear model with applications of these objectives and rates."""
    loads = tuple(Application(f"a{n}", slo_s, rate) for n, (slo_s, rate) in enumerate(apps))
    load = FunctionLoad("toy", LINEAR, min(slo for slo, _ in apps), 0.99, 16, loads)
    return replace(load, **fields)  # type: ignore[arg-type]


def planned(load: FunctionLoad, prices: Prices = PAY, **params: object) -> Plan:
    """Return the plan of one round on unlimited servers."""
    return harmonybatch(**params).plan(Snapshot(0.0, (load,), None, prices)).plans[load.name]


def test_groups_are_classes_and_windows_are_routes() -> None:
    """The tightest of VGG-19's three applications runs on cores; the others share a GPU class.

    Each application has its own window.
    """
    plan = planned(vgg19_load(CASES["three"].slos_s, CASES["three"].rates_rps), PRICES)
    shared, alone = plan.classes
    assert (1, 0) == (alone.batch_size, alone.gpu)
    assert pytest.approx(200 / 24) == shared.gpu
    routes = {route.app: route for route in plan.routes}
    assert {"*", "a0", "a1", "a2"} == routes.keys()
    assert {alone.name: 1.0} == routes["a0"].weights == routes["*"].weights
    assert {shared.name: 1.0} == routes["a1"].weights == routes["a2"].weights
    assert pytest.approx(0.2) == routes["a2"].max_wait_s - routes["a1"].max_wait_s
    assert 0.35 < routes["a1"].max_wait_s < 0.8
    assert plan.predicted.slo_miss_ratio is not None
    assert plan.predicted.slo_miss_ratio <= 0.0075
    assert any("a1, a2 (30 requests/s) share" in sentence for sentence in plan.explain)


@pytest.mark.parametrize(
    "name", ["three", *(pytest.param(name, marks=pytest.mark.slow) for name in ("four", "eight"))]
)
def test_simulated_cost_and_lateness_are_as_predicted(name: str) -> None:
    """Simulated cost is within 3 % of the prediction, with less than 1 % late per application."""
    case, horizon_s, model = CASES[name], 60.0 * scaled(150), vgg19()
    apps = tuple(
        App(f"a{n}", slo_s, Poisson(rate))
        for n, (slo_s, rate) in enumerate(zip(case.slos_s, case.rates_rps, strict=True))
    )
    function = Function("f", "vgg19", model, case.slos_s[0], 0.99, 32, apps)
    scenario = Scenario(Path("here"), (), PRICES, {"vgg19": model}, (function,), {}, horizon_s, 5)
    settings = Settings(interval_s=horizon_s, window_s=horizon_s)
    outcome = Simulation(scenario, harmonybatch(), settings).run()
    (plan,) = (run.controller.plan for run in outcome.functions)
    result = metrics_of(outcome)
    assert plan is not None
    assert pytest.approx(plan.predicted.cost_per_request, rel=0.03) == (
        result["cost"] / result["requests"]
    )
    assert pytest.approx(plan.predicted.mean_batch, rel=0.02) == result["mean_batch"]
    for app in result["functions"]["f"]["apps"].values():
        assert app["slo_miss_ratio"] < 0.01


def test_plan_is_kept_for_small_rate_changes() -> None:
    """Changes of the rate by a few percent keep the routes."""
    case = CASES["three"]
    rounds = Rounds(harmonybatch(), [vgg19_load(case.slos_s, case.rates_rps)], prices=PRICES)
    first = rounds.plan(0.0, {"classify": 35.0}).plans["classify"]
    for number, rate_rps in enumerate((36.0, 34.0, 37.0, 35.5)):
        later = rounds.plan(60.0 * (number + 1), {"classify": rate_rps}).plans["classify"]
        assert first.routes == later.routes


def test_functions_are_planned_independently() -> None:
    """Functions with the same model are planned independently of each other."""
    case = CASES["three"]
    one = vgg19_load(case.slos_s, case.rates_rps)
    other = replace(one, name="other")
    both = harmonybatch().plan(Snapshot(0.0, (one, other), None, PRICES)).plans
    assert both["classify"].classes == both["other"].classes
    assert both["classify"].routes == both["other"].routes


def test_high_load_moves_to_gpus() -> None:
    """At twenty times the rate all applications run on GPUs, at a lower cost."""
    case = CASES["three"]
    rounds = Rounds(harmonybatch(), [vgg19_load(case.slos_s, case.rates_rps)], prices=PRICES)
    first = rounds.plan(0.0, {"classify": 35.0}).plans["classify"]
    plans = [rounds.plan(60.0 * (n + 1), {"classify": 700.0}).plans for n in range(8)]
    later = plans[-1]["classify"]
    assert later.version > first.version
    assert all(kind.gpu for kind in later.classes)
    assert later.predicted.cost_per_request is not None
    assert first.predicted.cost_per_request is not None
    assert later.predicted.cost_per_request < 0.8 * first.predicted.cost_per_request


def test_change_that_does_not_pay_is_not_made() -> None:
    """A change that does not pay within the horizon is not made while no request is late."""
    case = CASES["three"]
    slow = harmonybatch(horizon_s=0.0)
    rounds = Rounds(slow, [vgg19_load(case.slos_s, case.rates_rps)], prices=PRICES)
    first = rounds.plan(0.0, {"classify": 35.0}).plans["classify"]
    later = rounds.plan(60.0, {"classify": 20.0}).plans["classify"]
    assert first.routes == later.routes


def test_a_new_application_is_served_at_once() -> None:
    """A new application has a route in the next plan."""
    policy, two = harmonybatch(), toy((0.3, 5.0), (0.6, 5.0))
    plan = policy.plan(Snapshot(0.0, (two,), None, PAY)).plans["toy"]
    three = replace(toy((0.3, 5.0), (0.6, 5.0), (0.9, 5.0)), plan=plan)
    later = policy.plan(Snapshot(10.0, (three,), None, PAY)).plans["toy"]
    assert {"*", "a0", "a1", "a2"} == {route.app for route in later.routes}


def test_groups_with_unknown_sizes_are_planned_again() -> None:
    """Groups with sizes that a changed model does not have are planned again."""
    plan = planned(toy((0.3, 5.0), (0.6, 5.0)))
    other = replace(toy((0.3, 5.0), (0.6, 5.0)), model=CLASSIFIER, plan=plan)
    later = planned(other)
    assert plan.version + 1 == later.version
    assert {kind.cpu for kind in later.classes} <= {2.0, 4.0, 8.0}


@pytest.mark.parametrize(
    ("apps", "windows"),
    [
        pytest.param([(0.3, 5.0)], 1, id="one application"),
        pytest.param([(0.3, 5.0), (0.3, 9.0)], 1, id="equal objectives"),
        pytest.param([(0.3, 0.0), (0.6, 4.0)], 2, id="one sends nothing"),
        pytest.param([(0.3, 1e-4), (0.6, 1e-4)], 2, id="rare"),
        pytest.param([(0.3, 1e5), (0.6, 1e5)], 2, id="very many"),
    ],
)
def test_unusual_loads_are_served(apps: list[tuple[float, float]], windows: int) -> None:
    """Unusual loads are served, with plausible numbers."""
    planning = harmonybatch().plan(Snapshot(0.0, (toy(*apps),), None, PAY))
    plan = planning.plans["toy"]
    assert {} == planning.unplaced
    assert len(apps) + 1 == len(plan.routes)
    assert windows >= len({route.max_wait_s for route in plan.routes})
    assert all(kind.replicas >= 1 for kind in plan.classes)
    assert 0 < (plan.predicted.cost_per_request or 0) < 1


@pytest.mark.parametrize("percentile", [0.2, 0.5, 0.9, 0.9999])
def test_lower_percentile_is_cheaper_and_met(percentile: float) -> None:
    """A lower percentile is cheaper, and no more requests than permitted are planned to be late."""
    case = CASES["three"]
    usual = vgg19_load(case.slos_s, case.rates_rps)
    plan, strict = (
        planned(replace(usual, percentile=share), PRICES).predicted
        for share in (percentile, 0.9999)
    )
    assert plan.slo_miss_ratio is not None
    assert plan.slo_miss_ratio <= 1 - percentile
    assert plan.cost_per_request is not None
    assert strict.cost_per_request is not None
    assert plan.cost_per_request <= strict.cost_per_request


def test_no_instances_without_load() -> None:
    """Without load, sizes and routes are planned but no instances beyond the minimum."""
    assert [0] == [kind.replicas for kind in planned(toy((0.3, 0.0))).classes]
    assert [2] == [kind.replicas for kind in planned(toy((0.3, 0.0), min_instances=2)).classes]


def test_impossible_objective_is_reported_and_others_are_served() -> None:
    """An application with an impossible objective is unplaced and named; others are served."""
    planning = harmonybatch().plan(Snapshot(0.0, (toy((0.05, 3.0), (0.5, 4.0)),), None, PAY))
    assert pytest.approx(3.0) == planning.unplaced["toy"]
    assert "No instance is fast enough for a0." in planning.plans["toy"].explain
    none = harmonybatch().plan(Snapshot(0.0, (toy((0.05, 3.0)),), None, PAY))
    assert ({}, {"toy": 3.0}) == (none.plans, none.unplaced)


def test_low_maximum_gives_one_group() -> None:
    """With a low maximum there is only one group for all applications."""
    load = vgg19_load(CASES["eight"].slos_s, CASES["eight"].rates_rps)
    planning = harmonybatch().plan(Snapshot(0.0, (replace(load, max_instances=3),), None, PRICES))
    assert 3 >= instances(planning)
    assert 1 == len(planning.plans["classify"].classes)


def test_groups_stay_without_room() -> None:
    """On a full server the routes stay, and the rest of the rate is unplaced."""
    cluster = servers(1, 2.0, 0)
    apps = toy((0.3, 20.0), (0.9, 20.0))
    plan = harmonybatch().plan(Snapshot(0.0, (apps,), cluster, PAY))
    there = {kind.name: Instances(kind.replicas) for kind in plan.plans["toy"].classes}
    full = servers(1, 0.5, 0)
    crowded = replace(toy((0.3, 90.0), (0.9, 90.0)), plan=plan.plans["toy"], instances=there)
    later = harmonybatch().plan(Snapshot(60.0, (crowded,), full, PAY))
    assert plan.plans["toy"].routes == later.plans["toy"].routes
    assert later.unplaced["toy"] > 0


@pytest.mark.parametrize("grouping", ["optimal", "two-stages", "apart", "together"])
def test_every_grouping_passes_policy_checks(grouping: str) -> None:
    """The policy passes the checks for scaling policies with every grouping."""
    report = check_scale_policy("harmonybatch", {"grouping": grouping}, scenarios=scaled(12))
    assert scaled(12) == report.scenarios


@pytest.mark.parametrize(
    "params",
    [{"spare": 1.0}, {"waiting": 0.0}, {"smoothing_s": -1.0}, {"hysteresis": -0.1}],
)
def test_parameters_are_checked(params: dict[str, object]) -> None:
    """Invalid parameters are refused with an error that names them."""
    with pytest.raises(ConfigError, match=next(iter(params))):
        harmonybatch(**params)
