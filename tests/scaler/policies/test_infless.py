"""INFless: kept, released and added instances."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.errors import ConfigError
from carpool.latency.linear import Linear
from carpool.latency.table import read_table
from carpool.plugins import build, resolve
from carpool.scaling import Application, FunctionLoad, Instances, resource_units
from scaler.planning.placement import Node
from scaler.testing import Rounds
from tests.effort import scaled
from tests.scaler.loads import counts, guarded, instances, load, servers, snapshot

if TYPE_CHECKING:
    from carpool.plan import Plan
    from scaler.control.guard import Guard
    from scaler.control.planning_result import PlanningResult
    from tests.measured import Data

SEARCHES = pytest.mark.parametrize("search", ["priced", "published"])


def infless(**params: object) -> Guard:
    """Return the policy with these parameters, behind a guard."""
    return guarded(build(resolve("scale", "infless"), params))


def units(planning: PlanningResult) -> float:
    """Return the resource units of all planned instances."""
    return sum(
        kind.replicas * resource_units(kind.cpu, kind.gpu)
        for plan in planning.plans.values()
        for kind in plan.classes
    )


def running(function: FunctionLoad, plan: Plan, **there: int) -> FunctionLoad:
    """Return the function with its plan carried out, or with other numbers of instances."""
    classes = {kind.name: Instances(ready=kind.replicas) for kind in plan.classes}
    others = {name.replace("_", "-"): Instances(ready=count) for name, count in there.items()}
    return dataclasses.replace(function, plan=plan, instances={**classes, **others})


@SEARCHES
def test_plan_has_capacity_for_rate(search: str) -> None:
    """The instances have the capacity for the rate, and every class has a route."""
    planning = infless(search=search).plan(snapshot(load(300)))
    plan = planning.plans["classify"]
    assert {} == planning.unplaced
    assert 300 <= sum(kind.replicas * (kind.rate_high or 0) for kind in plan.classes)
    (route,) = plan.routes
    assert set(route.weights) == {kind.name for kind in plan.classes}
    assert plan.explain[0].startswith("300 requests/s within 200 ms: ")


def test_priced_search_saves_resources(data: Data) -> None:
    """Within 200 ms the priced search needs under half for ResNet-50, else at most 20 % more."""
    for name in ("resnet-50", "mobilenet", "ssd"):
        model = read_table(data.table(name))
        shown = snapshot(load(500, model=model))
        ours, published = (infless(search=s).plan(shown) for s in ("priced", "published"))
        assert units(ours) <= units(published) * 1.2  # it has a reserve for random arrivals
        if name == "resnet-50":
            assert units(ours) * 2 < units(published)


@SEARCHES
def test_similar_load_keeps_plan_object(search: str) -> None:
    """After a minor change of the rate, the plan is the same object."""
    policy = infless(search=search)
    plan = policy.plan(snapshot(load(300))).plans["classify"]
    again = policy.plan(snapshot(running(load(299.9), plan)))
    assert plan is again.plans["classify"]


@SEARCHES
def test_higher_load_adds_to_existing_instances(search: str) -> None:
    """Case i: instances are added to the existing ones, and the version grows."""
    policy = infless(search=search)
    plan = policy.plan(snapshot(load(300))).plans["classify"]
    grown = policy.plan(snapshot(running(load(600), plan))).plans["classify"]
    assert counts(plan) <= counts(grown)
    assert (1, 2) == (plan.version, grown.version)


@SEARCHES
def test_lower_load_releases_instances(search: str) -> None:
    """Case iii: the remaining instances are some of the existing ones, and suffice for the rate."""
    policy = infless(search=search)
    plan = policy.plan(snapshot(load(600))).plans["classify"]
    left = policy.plan(snapshot(running(load(200), plan))).plans["classify"]
    assert counts(left) < counts(plan)
    assert 200 <= sum(kind.replicas * (kind.rate_high or 0) for kind in left.classes)
    assert any(sentence.startswith("Released ") for sentence in left.explain)


def test_slightly_lower_load_keeps_instances() -> None:
    """Case ii: between theta and the maximum, the instances stay and only their rates change."""
    policy = infless()
    plan = policy.plan(snapshot(load(300))).plans["classify"]
    after = policy.plan(snapshot(running(load(280), plan))).plans["classify"]
    assert counts(plan) == counts(after)


def test_missing_instances_are_planned_again() -> None:
    """Planned instances that are missing are placed again."""
    policy = infless()
    plan = policy.plan(snapshot(load(300))).plans["classify"]
    (kind,) = plan.classes
    lost = running(load(300), plan, **{kind.name.replace("-", "_"): 3})
    assert counts(plan) == counts(policy.plan(snapshot(lost)).plans["classify"])
    full = servers(1, 4, 0)
    for _ in range(2):
        full.place(lost.model.resources(1, 2.0, 0.0), 0)
    kept = policy.plan(snapshot(lost, cluster=full))
    assert 3 == instances(kept)
    assert kept.unplaced["classify"] > 200


def test_instances_of_other_policy_stay_if_they_meet_objective() -> None:
    """Instances of another policy stay if their size meets the objective, and go otherwise."""
    plan = infless().plan(snapshot(load(20))).plans["classify"]
    good = dataclasses.replace(plan.classes[0], name="theirs", replicas=2)
    late = dataclasses.replace(good, name="late", batch_size=2)  # 230 ms within 200
    other = dataclasses.replace(
        plan,
        policy="other",
        classes=(good, late),
        routes=(dataclasses.replace(plan.routes[0], weights={"theirs": 1.0}),),
    )
    after = infless().plan(snapshot(running(load(20), other))).plans["classify"]
    assert {"b1-c2"} == set(counts(after))
    assert counts(after)["b1-c2"] >= 2


def test_class_is_named_without_load() -> None:
    """Without load a class has no instance, or one if there is a keep-alive time."""
    none = infless().plan(snapshot(load(0)))
    asleep = infless(keep_alive_s=60.0).plan(snapshot(load(0)))
    assert ({}, 0) == (none.unplaced, instances(none))
    assert {"b1-c2": 1.0} == none.plans["classify"].routes[0].weights
    assert 1 == instances(asleep)
    assert 60 == asleep.plans["classify"].keep_alive_s


@SEARCHES
def test_bounds_of_a_function(search: str) -> None:
    """The number of instances stays within the bounds at any load."""
    policy = infless(search=search)
    least = policy.plan(snapshot(load(0, bounds=(2, None))))
    most = policy.plan(snapshot(load(5000, bounds=(0, 3))))
    assert 2 == instances(least)
    assert 3 == instances(most)
    assert most.unplaced["classify"] > 0
    after = policy.plan(snapshot(running(load(5000, bounds=(0, 2)), most.plans["classify"])))
    assert 2 == instances(after)


@SEARCHES
def test_an_impossible_objective_is_unplaced(search: str) -> None:
    """An objective that no size meets gives no plan, and all of the rate is unplaced."""
    planning = infless(search=search).plan(snapshot(load(10, slo_s=0.001)))
    assert ({}, {"classify": 10}) == (planning.plans, planning.unplaced)


def test_wait_is_objective_less_executions() -> None:
    """The wait is the objective less one execution if published, and less two if priced."""
    shown = snapshot(load(300, model=Linear(0.02, 0.001, cpu=1.0)))
    published = infless(search="published", offset=0.0).plan(shown).plans["classify"]
    ours = infless(offset=0.0).plan(shown).plans["classify"]
    for plan, executions in ((published, 1), (ours, 2)):
        longest = max(kind.exec_s or 0 for kind in plan.classes if kind.batch_size > 1)
        assert pytest.approx(0.2 - executions * longest) == plan.routes[0].max_wait_s


def test_laxer_applications_wait_longer() -> None:
    """Sizes suit the tightest application, and each application has its own wait."""
    apps = (Application("web", 0.2, 400.0), Application("mail", 0.5, 400.0))
    function = dataclasses.replace(load(1, model=Linear(0.02, 0.001)), apps=apps)
    routes = infless().plan(snapshot(function)).plans["classify"].routes
    others, mail = routes
    assert ("*", "mail") == (others.app, mail.app)
    assert pytest.approx(others.max_wait_s + 0.3) == mail.max_wait_s
    assert others.weights == mail.weights


def test_rounded_parameter_gives_printed_rates() -> None:
    """With ``rounded``, an execution of 150 ms gives the printed rate of 6 requests per second."""
    plan = infless(search="published", rounded=True).plan(snapshot(load(6))).plans["classify"]
    assert [6.0] == [kind.rate_high for kind in plan.classes]
    assert [1.0] == [kind.rate_low for kind in plan.classes]


@pytest.mark.parametrize(
    "params",
    [
        {"alpha": 1.5},
        {"offset": -0.1},
        {"search": "best"},
        {"aim": "money"},
        {"keep_alive_s": -1.0},
    ],
)
def test_parameters_are_checked(params: dict[str, object]) -> None:
    """Invalid parameters are refused with an error that names them."""
    with pytest.raises(ConfigError, match=next(iter(params))):
        infless(**params)


RATE = st.one_of(st.just(0.0), st.floats(0.001, 600))
RATES = st.lists(st.fixed_dictionaries({"a": RATE, "b": RATE}), min_size=1, max_size=6)
NODES = st.lists(
    st.builds(Node, st.just("n"), st.sampled_from([4.0, 8.0, 32.0]), st.integers(0, 2)),
    min_size=1,
    max_size=3,
)


@settings(max_examples=scaled(60))
@given(
    rates=RATES,
    nodes=NODES,
    search=st.sampled_from(["priced", "published"]),
    aim=st.sampled_from(["resources", "servers"]),
)
def test_servers_are_not_overcommitted_for_any_history(
    rates: list[dict[str, float]], nodes: list[Node], search: str, aim: str
) -> None:
    """Plans never exceed the total resources, and the rate is served or unplaced."""
    policy = infless(search=search, aim=aim)
    rounds = Rounds(policy, [load(0, name="a"), load(0, name="b")], nodes)
    cpu, gpu = sum(n.cpu for n in nodes), sum(n.gpus * 100 for n in nodes)
    for number, now in enumerate(rates):
        planning = rounds.plan(number * 10.0, now)
        classes = [k for plan in planning.plans.values() for k in plan.classes]
        assert sum(k.cpu * k.replicas for k in classes) <= cpu
        assert sum(k.gpu * k.replicas for k in classes) <= gpu
        for name, rate in now.items():
            taken = sum(k.replicas * (k.rate_high or 0) for k in planning.plans[name].classes)
            assert taken + planning.unplaced.get(name, 0.0) >= rate * (1 - 1e-6)


def test_batches_wait_only_if_rate_fills_them() -> None:
    """Batches wait only if the rate fills them in time, with hysteresis near the limit."""
    model = Linear(0.02, 0.002)  # a batch of 8 takes 40 ms with the offset: full in time from 50/s

    def wait_s(rate_rps: float, plan: Plan | None = None) -> float:
        function = load(rate_rps, model=model, max_batch=8)
        function = running(function, plan) if plan else function
        return infless().plan(snapshot(function)).plans["classify"].routes[0].max_wait_s

    assert 0 == wait_s(20)
    assert 0 == wait_s(48)
    assert 0.1 < wait_s(60)
    waiting = infless().plan(snapshot(load(60, model=model, max_batch=8))).plans["classify"]
    assert 0.1 < wait_s(48, waiting)
    assert 0 == wait_s(40, waiting)


def test_no_application_waits_if_batches_do_not_fill() -> None:
    """If batches do not fill, no application waits, however long its objective is."""
    apps = (Application("web", 0.2, 10.0), Application("mail", 0.5, 10.0))
    model = Linear(0.02, 0.002)
    function = dataclasses.replace(load(1, model=model, max_batch=8), apps=apps)
    routes = infless().plan(snapshot(function)).plans["classify"].routes

    assert [0.0] * len(routes) == [route.max_wait_s for route in routes]


def test_last_instance_has_least_resources_and_highest_rate() -> None:
    """Without load, the instance that stays has the smallest resources and the highest rate."""
    model = Linear(0.02, 0.002)
    plan = infless().plan(snapshot(load(0, model=model, max_batch=8, bounds=(1, None))))
    assert {"b8-c1": 1} == counts(plan.plans["classify"])
