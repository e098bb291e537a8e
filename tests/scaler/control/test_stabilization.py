"""How fast plans follow what is wanted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from carpool.plan import InstanceClass, OnOffer, Plan, Route
from carpool.scaling import Application
from scaler.control.stabilization import Limits, Stabilization
from tests.scaler.control.wishes import in_force, wanted
from tests.scaler.loads import counts, load

if TYPE_CHECKING:
    from carpool.scaling import FunctionLoad


def followed(
    restraint: Stabilization, wish: Plan, before: FunctionLoad, now_s: float = 0.0
) -> Plan:
    """What becomes of a wish; why is not asked."""
    return restraint.follow(before, wish, now_s, lambda _: None)


def test_a_dip_stops_nothing() -> None:
    """A reduction counts once it has been wanted for the whole window; a rise at once."""
    restraint, plan = Stabilization(Limits(window_s=60, growth_least=100, shrink=1.0)), wanted(10)

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


def test_a_restart_stops_nothing() -> None:
    """What is in force counts as wanted by a restraint that has just begun, which says so."""
    restraint, notes = Stabilization(Limits(window_s=60, shrink=1.0)), list[str]()
    plan = restraint.follow(in_force(wanted(10)), wanted(4), 0.0, notes.append)
    assert 10 == counts(plan).total()
    assert notes == [
        "the policy wants fewer instances, which are removed only when it has wanted so for 60 s"
    ]


def test_the_same_instances_are_no_reduction() -> None:
    """They may be said to take less than before, and then requests go elsewhere at once."""
    before = of_variants(small=2, large=1)
    slower = tuple(replace(each, rate_high=(each.rate_high or 0) - 1) for each in before.classes)
    wish = replace(before, classes=slower, routes=(Route("*", {"large-b1": 1.0}, 0.0),))
    restraint, notes = Stabilization(Limits(window_s=60, shrink=1.0)), list[str]()

    assert wish is restraint.follow(in_force(before), wish, 0.0, notes.append)
    assert not notes
    fewer = of_variants(small=1, large=1)
    assert wish.routes == followed(restraint, fewer, in_force(wish), 1.0).routes
    assert {"small-b1": 2, "large-b1": 1} == counts(followed(restraint, fewer, in_force(wish), 2.0))


def test_between_two_reductions_there_is_time() -> None:
    """The second waits for the cool-down."""
    limits = Limits(window_s=0, cool_down_s=30, growth_least=100, shrink=1.0)
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


def test_a_rise_goes_in_steps() -> None:
    """With two there, at most as many again, and three at least."""
    limits = Limits(window_s=0, growth=1.0, growth_least=3)
    assert 5 == counts(followed(Stabilization(limits), wanted(100), in_force(wanted(2)))).total()
    assert 16 == counts(followed(Stabilization(limits), wanted(100), in_force(wanted(8)))).total()
    assert 3 == counts(followed(Stabilization(limits), wanted(100), load(50))).total()


def test_a_reduction_goes_part_of_the_way() -> None:
    """Half of each class in a round, on the sizes that there are, until it is done."""
    restraint, plan = Stabilization(Limits(window_s=0, shrink=0.5)), wanted(8, large=4)
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
    """A plan of variants; the small one takes most, and the large one is the most accurate."""
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
    """A function under this plan, with these applications besides."""
    before = in_force(plan)
    return replace(before, apps=(*before.apps, *apps))


EXACT = Application("accuracy=0.75", 0.2, 1.0, accuracy=0.75, chooses=True)


def test_a_plan_that_is_held_gets_what_it_does_not_serve() -> None:
    """Small ones stay for the window; the large one, which a reduction brings, is there at once."""
    before, wish = of_variants(small=2, large=0), of_variants(small=0, large=1)
    held = followed(Stabilization(Limits()), wish, demanding(before, EXACT))

    assert {"small-b1": 2, "large-b1": 1} == dict(counts(held))
    assert before.routes == held.routes


def test_a_plan_that_is_held_gets_nothing_that_is_not_needed() -> None:
    """Without requests for it, the large one waits like any other reduction."""
    before, wish = of_variants(small=2, large=0), of_variants(small=0, large=1)
    for app in (
        replace(EXACT, rate_rps=0.0),
        replace(EXACT, accuracy=0.6),
        replace(EXACT, cost=-1),
    ):
        held = followed(Stabilization(Limits()), wish, demanding(before, app))
        assert {"small-b1": 2} == dict(counts(held))


def test_an_application_that_is_served_anew_gets_its_route() -> None:
    """Applications with routes use what was added for them, and all others as before."""
    before = of_variants(small=2)
    routes = (Route("*", {"large-b1": 1.0}, 0.0), Route("exact", {"large-b1": 1.0}, 0.0, 0.75))
    wish = replace(of_variants(large=1), routes=routes)
    app = Application("exact", 0.2, 1.0, accuracy=0.75)
    held = followed(Stabilization(Limits()), wish, demanding(before, app))

    assert {"*": {"small-b1": 1.0}, "exact": {"large-b1": 1.0}} == {
        route.app: dict(route.weights) for route in held.routes
    }


def test_what_makes_room_for_those_who_wait_goes_at_once() -> None:
    """The policy removes idle instances, as there is no capacity for what requests demand."""
    before, wish = of_variants(small=2, large=0), of_variants(small=1, large=0)
    notes = list[str]()
    plan = Stabilization(Limits()).follow(demanding(before, EXACT), wish, 0.0, notes.append)

    assert {"small-b1": 1} == dict(counts(plan))
    assert "to free capacity" in notes[0]


def test_what_cannot_be_had_holds_no_reduction_open() -> None:
    """For a window reductions may make room; after that they wait like all others."""
    restraint = Stabilization(Limits(window_s=60, shrink=1.0))
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
