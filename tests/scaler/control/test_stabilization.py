"""How fast plans follow a policy's proposals."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from carpool.plan import InstanceClass, OnOffer, Plan, Route
from carpool.scaling import Application
from scaler.control.stabilization import Stabilization, StabilizationLimits
from tests.scaler.control.wishes import in_force, wanted
from tests.scaler.loads import counts, load

if TYPE_CHECKING:
    from carpool.scaling import FunctionLoad


def followed(
    restraint: Stabilization, wish: Plan, before: FunctionLoad, now_s: float = 0.0
) -> Plan:
    """Return the plan made from a wish, without its notes."""
    return restraint.follow(before, wish, now_s, lambda _: None)


def test_reduction_applies_after_window_and_increase_at_once() -> None:
    """A reduction applies after it has been wanted for the whole window, an increase at once."""
    restraint, plan = (
        Stabilization(StabilizationLimits(window_s=60, growth_least=100, shrink=1.0)),
        wanted(10),
    )

    def after(wish: int, now_s: float) -> int:
        nonlocal plan
        plan = followed(restraint, wanted(wish), in_force(plan), now_s)
        return counts(plan).total()

    assert 10 == after(10, 0)
    assert 10 == after(4, 10)
    assert 10 == after(6, 50)
    assert 6 == after(5, 65)
    assert 12 == after(12, 70)
    assert 12 == after(1, 129)
    assert 1 == after(1, 130)


def test_plan_in_force_counts_as_wanted_after_restart() -> None:
    """After a restart the plan in force counts as wanted, and the held reduction is reported."""
    restraint, notes = Stabilization(StabilizationLimits(window_s=60, shrink=1.0)), list[str]()
    plan = restraint.follow(in_force(wanted(10)), wanted(4), 0.0, notes.append)
    assert 10 == counts(plan).total()
    assert notes == [
        "the policy wants fewer instances, which are removed only after it has wanted this for 60 s"
    ]


def test_plan_replaces_first_plan_at_once() -> None:
    """The plan of a slow model is not held back for a first plan with larger batches."""
    first = InstanceClass("first", cpu=2.0, batch_size=32, replicas=1)
    plan = Plan("classify", 1, "first", (first,), (Route("*", {"first": 1.0}, 0.0),))
    wish = wanted(3)  # 18 requests/s
    assert wish == followed(Stabilization(StabilizationLimits()), wish, in_force(plan))


def test_deployed_instances_are_removed_after_window() -> None:
    """Instances whose rate is unknown are removed only after the window, however fast they are."""
    restraint = Stabilization(StabilizationLimits(window_s=60, shrink=1.0))
    plan = wanted(10)
    classes = tuple(replace(each, rate_high=None) for each in plan.classes)
    plan = replace(plan, policy="deployed", classes=classes)
    for now_s, count in ((0.0, 10), (59.0, 10), (60.0, 4)):
        plan = followed(restraint, wanted(4), in_force(plan), now_s)
        assert count == counts(plan).total()


def test_new_function_does_not_continue_history_of_its_name() -> None:
    """A function without a plan gets the instances it wants, not those of a removed namesake."""
    restraint = Stabilization(StabilizationLimits(window_s=60))
    assert 9 == counts(followed(restraint, wanted(9), load(50), 0.0)).total()
    assert 1 == counts(followed(restraint, wanted(1), load(50), 5.0)).total()


def test_lower_capacity_of_same_instances_is_no_reduction() -> None:
    """A lower capacity of the same instances is no reduction, and new routes apply at once."""
    before = of_variants(small=2, large=1)
    slower = tuple(replace(each, rate_high=(each.rate_high or 0) - 1) for each in before.classes)
    wish = replace(before, classes=slower, routes=(Route("*", {"large-b1": 1.0}, 0.0),))
    restraint, notes = Stabilization(StabilizationLimits(window_s=60, shrink=1.0)), list[str]()

    assert wish is restraint.follow(in_force(before), wish, 0.0, notes.append)
    assert not notes
    fewer = of_variants(small=1, large=1)
    assert wish.routes == followed(restraint, fewer, in_force(wish), 1.0).routes
    assert {"small-b1": 2, "large-b1": 1} == counts(followed(restraint, fewer, in_force(wish), 2.0))


def test_second_reduction_waits_for_cooldown() -> None:
    """A second reduction waits for the cool-down time."""
    limits = StabilizationLimits(window_s=0, cool_down_s=30, growth_least=100, shrink=1.0)
    restraint, plan = Stabilization(limits), wanted(10)
    totals = []
    for now_s, wish in ((0, 8), (10, 6), (29, 5), (30, 4)):
        plan = followed(restraint, wanted(wish), in_force(plan), now_s)
        totals.append(counts(plan).total())
    assert [8, 8, 8, 4] == totals
    notes = list[str]()
    restraint.follow(in_force(plan), wanted(3), 59.0, notes.append)
    said = "the policy wants fewer instances, but the last ones were removed less than 30 s ago"
    assert [said] == notes


def test_growth_is_limited_per_round() -> None:
    """A plan grows by at most as many instances as exist, or by three if that is more."""
    limits = StabilizationLimits(window_s=0, growth=1.0, growth_least=3)
    assert 5 == counts(followed(Stabilization(limits), wanted(100), in_force(wanted(2)))).total()
    assert 16 == counts(followed(Stabilization(limits), wanted(100), in_force(wanted(8)))).total()
    assert 3 == counts(followed(Stabilization(limits), wanted(100), load(50))).total()


def test_reduction_is_gradual() -> None:
    """A reduction removes half of each existing class per round until it is complete."""
    restraint, plan = Stabilization(StabilizationLimits(window_s=0, shrink=0.5)), wanted(8, large=4)
    seen = []
    for now_s in range(5):
        plan = followed(restraint, wanted(1), in_force(plan), now_s)
        seen.append(dict(counts(plan)))
    assert [
        {"b4-c4-g20": 2, "b1-c2": 4},
        {"b4-c4-g20": 1, "b1-c2": 2},
        {"b1-c2": 1},
        {"b1-c2": 1},
        {"b1-c2": 1},
    ] == seen


def of_variants(**counts_of: int) -> Plan:
    """Return a plan of variants: the small has the most capacity, the large is most accurate."""
    rates = {"small": 50.0, "large": 10.0}
    accuracies = {"small": 0.7, "large": 0.8}
    classes = tuple(
        InstanceClass(
            f"{name}-b1", cpu=1.0, batch_size=1, replicas=count, variant=name, rate_high=rates[name]
        )
        for name, count in counts_of.items()
    )
    offers = tuple(OnOffer(f"{name}-b1", name, accuracies[name], 0.1) for name in rates)
    first = classes[0].name
    return Plan("classify", 1, "wishes", classes, (Route("*", {first: 1.0}, 0.0),), variants=offers)


def demanding(plan: Plan, *apps: Application) -> FunctionLoad:
    """Return the load of a function with this plan and additional applications."""
    before = in_force(plan)
    return replace(before, apps=(*before.apps, *apps))


EXACT = Application("accuracy=0.75", 0.2, 1.0, accuracy=0.75, chooses=True)


def test_held_plan_gets_instance_for_unserved_demand() -> None:
    """While a reduction is held back, an instance for an unserved demand starts at once."""
    before, wish = of_variants(small=2, large=0), of_variants(small=0, large=1)
    held = followed(Stabilization(StabilizationLimits()), wish, demanding(before, EXACT))

    assert {"small-b1": 2, "large-b1": 1} == dict(counts(held))
    assert before.routes == held.routes


def test_held_plan_gets_no_unneeded_instance() -> None:
    """Without an unserved demand, the new instance waits with the rest of the reduction."""
    before, wish = of_variants(small=2, large=0), of_variants(small=0, large=1)
    for app in (
        replace(EXACT, rate_rps=0.0),
        replace(EXACT, accuracy=0.6),
        replace(EXACT, cost=-1),
    ):
        held = followed(Stabilization(StabilizationLimits()), wish, demanding(before, app))
        assert {"small-b1": 2} == dict(counts(held))


def test_newly_served_application_gets_route_in_held_plan() -> None:
    """An application with its own route uses the added instances; other requests go as before."""
    before = of_variants(small=2)
    routes = (Route("*", {"large-b1": 1.0}, 0.0), Route("exact", {"large-b1": 1.0}, 0.0, 0.75))
    wish = replace(of_variants(large=1), routes=routes)
    app = Application("exact", 0.2, 1.0, accuracy=0.75)
    held = followed(Stabilization(StabilizationLimits()), wish, demanding(before, app))

    assert {"*": {"small-b1": 1.0}, "exact": {"large-b1": 1.0}} == {
        route.app: dict(route.weights) for route in held.routes
    }


def test_reduction_for_unserved_demand_applies_at_once() -> None:
    """A reduction that frees capacity for an unserved demand applies at once."""
    before, wish = of_variants(small=2, large=0), of_variants(small=1, large=0)
    notes = list[str]()
    plan = Stabilization(StabilizationLimits()).follow(
        demanding(before, EXACT), wish, 0.0, notes.append
    )

    assert {"small-b1": 1} == dict(counts(plan))
    assert "to free capacity" in notes[0]


def test_reductions_for_unserved_demand_are_limited_to_one_window() -> None:
    """Reductions to free capacity apply at once for one window, and are held back after it."""
    restraint = Stabilization(StabilizationLimits(window_s=60, shrink=1.0))
    before, wish = of_variants(small=2, large=0), of_variants(small=1, large=0)
    demanded, served = demanding(before, EXACT), of_variants(small=2, large=1)

    def after(now_s: float, wanted: Plan = wish, load: FunctionLoad = demanded) -> int:
        return counts(followed(restraint, wanted, load, now_s))["small-b1"]

    assert 2 == after(0.0, before)  # nothing is held back, and nothing helps
    assert 1 == after(59.0)
    assert 2 == after(61.0, before)
    assert 2 == after(62.0)
    assert 2 == after(63.0, served, demanding(served, EXACT))
    assert 2 == after(130.0, before)  # from here on it is demanded again
    assert 1 == after(131.0)
