"""How fast plans follow what is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler.control.stabilization import Limits, Stabilization
from tests.scaler.control.wishes import in_force, wanted
from tests.scaler.loads import counts, load

if TYPE_CHECKING:
    from carpool.plan import Plan
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
    assert ["a reduction has not been wanted for long enough"] == notes


def test_between_two_reductions_there_is_time() -> None:
    """The second waits for the cool-down."""
    limits = Limits(window_s=0, cool_down_s=30, growth_least=100, shrink=1.0)
    restraint, plan = Stabilization(limits), wanted(10)
    totals = []
    for now_s, wish in ((0, 8), (10, 6), (29, 5), (30, 4)):
        plan = followed(restraint, wanted(wish), in_force(plan), now_s)
        totals.append(counts(plan).total())
    assert [8, 8, 8, 4] == totals


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
