"""The policy `infaas`, which chooses variants by what applications need."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from carpool.errors import ConfigError
from carpool.scaling import Application, FunctionLoad, Instances
from carpool.testing import check_scale_policy
from carpool.variants.variant import Variant
from carpool.variants.variant_set import VariantSet
from scaler.planning.cost import Prices
from scaler.planning.placement import Cluster, Node
from scaler.planning.snapshot import Snapshot
from scaler.policies.infaas import policy as infaas_policy
from scaler.policies.infaas.policy import Infaas
from scaler.testing import Rounds
from tests.effort import scaled
from tests.scaler.loads import guarded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.plan import Plan
    from scaler.policies.infaas.offers import Offer

SMALL = Variant("small", 0.70, {1: 0.020, 8: 0.100}, cpu=1, load_s=1.0)
LARGE = Variant("large", 0.80, {1: 0.100}, cpu=1, load_s=2.0)
GPU = Variant("gpu", 0.80, {1: 0.010, 32: 0.050}, cpu=1, gpu=20, load_s=5.0)
SET = VariantSet((SMALL, LARGE, GPU))
PRICES = Prices("reserved", cpu_core_s=1.0, gpu_percent_s=0.25)


def function(*apps: Application, model: VariantSet = SET) -> FunctionLoad:
    """Return a function that these applications call."""
    return FunctionLoad("vision", model, 1.0, 0.99, 32, apps)


def planned(
    load: FunctionLoad, params: Infaas.Params | None = None, cluster: Cluster | None = None
) -> Plan:
    """Return the plan of one round."""
    snapshot = Snapshot(0.0, (load,), cluster, PRICES)
    return guarded(Infaas(params or Infaas.Params())).plan(snapshot).plans["vision"]


def variants(plan: Plan) -> dict[str, int]:
    """Return the number of instances by variant."""
    return {kind.variant: kind.replicas for kind in plan.classes if kind.replicas}


@pytest.mark.parametrize("planner", ["greedy", "published", "program"])
def test_every_planner_passes_policy_checks(planner: str) -> None:
    """The policy passes the checks with every planner, also for models without variants."""
    check_scale_policy("infaas", {"planner": planner}, scenarios=scaled(12))


@pytest.mark.parametrize("planner", ["greedy", "published", "program"])
def test_low_load_uses_cheapest_accurate_variant(planner: str) -> None:
    """Two requests per second use no GPU, and the cheapest variant that is accurate enough."""
    params = Infaas.Params(planner=planner)  # type: ignore[arg-type]
    assert {"small": 1} == variants(planned(function(Application("a", 1.0, 2.0)), params))
    exact = function(Application("a", 1.0, 2.0, accuracy=0.75))
    assert {"large"} == variants(planned(exact, params)).keys()


def test_high_load_moves_to_a_faster_variant() -> None:
    """At a high load, upgrading is cheaper than many replicas."""
    exact = function(Application("a", 1.0, 300.0, accuracy=0.75))
    assert {"gpu"} == variants(planned(exact)).keys()


def test_low_load_downgrades_to_cheap_variant() -> None:
    """When the load has been low for long enough, the cheap variant replaces the expensive one."""
    rounds = Rounds(
        guarded(Infaas(Infaas.Params())),
        [function(Application("a", 1.0, 0.0, accuracy=0.75))],
        prices=PRICES,
    )
    first = rounds.plan(0.0, {"vision": 300.0}).plans["vision"]
    early = rounds.plan(20.0, {"vision": 2.0}).plans["vision"]
    late = rounds.plan(100.0, {"vision": 2.0}).plans["vision"]
    assert ["gpu", "gpu", "large"] == [next(iter(variants(p))) for p in (first, early, late)]


def test_routes_use_only_accurate_enough_variants() -> None:
    """A route leads only to accurate enough variants, and the default route to the best."""
    apps = (Application("lax", 1.0, 40.0), Application("exact", 1.0, 20.0, accuracy=0.75))
    plan = planned(function(*apps))
    accuracy = {
        kind.name: {v.name: v for v in SET.variants}[kind.variant].accuracy for kind in plan.classes
    }
    routes = {route.app: route for route in plan.routes}
    assert all(accuracy[name] >= 0.75 for name, w in routes["*"].weights.items() if w)
    assert {"*", "lax"} == routes.keys()


def test_spare_capacity_serves_other_application() -> None:
    """A less demanding application uses spare capacity instead of its own instance."""
    apps = (Application("lax", 1.0, 1.0), Application("exact", 1.0, 1.0, accuracy=0.75))
    assert {"large": 1} == variants(planned(function(*apps)))


def test_impossible_objective_is_explained_and_unplaced() -> None:
    """An impossible objective is explained, its rate unplaced and its route accurate enough."""
    load = function(Application("hasty", 0.001, 5.0, accuracy=0.75), Application("a", 1.0, 5.0))
    planning = guarded(Infaas(Infaas.Params())).plan(Snapshot(0.0, (load,), None, PRICES))
    plan = planning.plans["vision"]
    assert 5.0 == pytest.approx(planning.unplaced["vision"])
    assert "no suitable variant" in plan.explain[-1]
    named = {route.app: route.weights for route in plan.routes}
    assert {"gpu-b1", "gpu-b32"} & named.get("hasty", named["*"]).keys() or "large-b1" in named["*"]


def test_old_instances_stay_if_replacement_has_no_room() -> None:
    """On a full server the old instances stay if their replacement does not fit."""
    load = function(Application("a", 1.0, 20.0, accuracy=0.75))
    cluster = Cluster([Node("n", 4.0, 0)])
    plan = planned(load, cluster=cluster)
    for _ in range(4):
        node = cluster.best_fit(SET.resources(1, 1.0, 0.0))
        if node is not None:
            cluster.place(SET.resources(1, 1.0, 0.0), node)
    busier = replace(
        function(Application("a", 1.0, 500.0, accuracy=0.75)),
        plan=plan,
        instances={k.name: Instances(ready=k.replicas) for k in plan.classes},
    )
    later = planned(busier, cluster=cluster)
    assert variants(later)["large"] >= variants(plan)["large"]


def test_unneeded_instances_make_room() -> None:
    """On a full server idle instances are removed to make room for wanted ones."""
    load = function(Application("a", 1.0, 2.0, accuracy=0.75))
    cluster = Cluster([Node("n", 2.0, 0)])
    plan = planned(function(Application("a", 1.0, 2.0)))
    (small,) = (kind for kind in plan.classes if kind.replicas)
    for _ in range(2):
        node = cluster.best_fit(SET.resources(1, 1.0, 0.0))
        assert node is not None
        cluster.place(SET.resources(1, 1.0, 0.0), node)
    idle = replace(
        load,
        plan=replace(plan, classes=(replace(small, replicas=2),)),
        instances={small.name: Instances(ready=2)},
    )
    later = planned(idle, cluster=cluster)
    assert {"small": 2} != variants(later)


def test_replicate_uses_one_variant() -> None:
    """With ``replicate``, one variant that suits every application is used at any load."""
    params = Infaas.Params(scaling="replicate")
    apps = (Application("lax", 1.0, 300.0), Application("exact", 1.0, 2.0, accuracy=0.75))
    assert 1 == len(variants(planned(function(*apps), params)))


@pytest.mark.parametrize("params", [{"slack": 0.9}, {"loading": -1.0}, {"calm_s": float("inf")}])
def test_invalid_parameters_are_refused(params: dict[str, float]) -> None:
    """Invalid parameters are refused with an error that names them."""
    with pytest.raises(ConfigError, match=next(iter(params))):
        Infaas.Params(**params)  # type: ignore[arg-type]


def test_plan_settles_at_constant_load() -> None:
    """At a constant load, plans with variants stop changing and fit on the servers."""
    apps = (Application("lax", 1.0, 0.0), Application("exact", 1.0, 0.0, accuracy=0.75))
    rounds = Rounds(
        guarded(Infaas(Infaas.Params())), [function(*apps)], [Node("n", 16.0, 1)], PRICES
    )
    plans = [
        rounds.plan(60.0 * number, {"vision": rate}).plans["vision"]
        for number, rate in enumerate([2.0, 400.0, 30.0, 30.0, 30.0, 30.0, 30.0])
    ]
    assert plans[-1] == plans[-2] == plans[-3]
    assert {} == rounds.unplaced


def test_replicate_prices_offers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later rounds reuse the offers that the first one has priced."""
    made: list[int] = []
    priced_offers = infaas_policy._priced_offers

    def counted(offers: Sequence[Offer]) -> Any:
        made.append(len(offers))
        return priced_offers(offers)

    monkeypatch.setattr(infaas_policy, "_priced_offers", counted)
    load = function(Application("a", 1.0, 20.0))
    rounds = Rounds(guarded(Infaas(Infaas.Params(scaling="replicate"))), [load], prices=PRICES)
    plans = [rounds.plan(60.0 * number, {"vision": 20.0}).plans["vision"] for number in range(5)]
    assert 1 == len({next(iter(variants(plan))) for plan in plans})
    assert [1] == made
