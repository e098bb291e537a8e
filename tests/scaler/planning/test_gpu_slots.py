"""Notes on GPU shares that are rounded up to whole slots."""

from __future__ import annotations

import pytest

from carpool.plan import InstanceClass, Plan
from scaler.live_planner import rounded_shares
from scaler.planning.placement import Node


def plan(gpu: float) -> Plan:
    """Return a plan of one class."""
    one = InstanceClass("b4-c1", cpu=1.0, batch_size=4, replicas=1, gpu=gpu)
    return Plan("fn", 1, "fixed", (one,))


@pytest.mark.parametrize(
    ("gpu", "slots", "expected"),
    [
        (40, 4, ["b4-c1 takes 50 % of a GPU for 40 %: 2 of 4 slots"]),
        (10, 1, ["b4-c1 takes 100 % of a GPU for 10 %: 1 of 1 slots"]),
        (25, 4, []),
        (100 / 3, 3, []),
        (100, 1, []),
        (40, 0, []),  # in shares of any size
        (0, 4, []),
    ],
)
def test_rounded_up_shares_are_named(gpu: float, slots: int, expected: list[str]) -> None:
    """Only shares that are rounded up are named, with what they take."""
    nodes = [Node("a", 4.0, 1, gpu_slots=slots), Node("b", 4.0, 0, gpu_slots=7)]
    assert expected == list(rounded_shares(plan(gpu), nodes))


def test_no_note_without_plan() -> None:
    """Without a plan there is no note."""
    assert [] == list(rounded_shares(None, [Node("a", 4.0, 1, gpu_slots=4)]))
