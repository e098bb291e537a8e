"""So many instances of one size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from carpool.errors import ConfigError
from carpool.latency import Configuration
from carpool.latency.linear import Linear
from carpool.latency.table import Table
from carpool.plugins import build, resolve
from scaler.policies.common.given_size import given_size
from scaler.testing import Rounds
from tests.scaler.loads import CLASSIFIER, counts, guarded, instances, load, servers, snapshot

if TYPE_CHECKING:
    from scaler.control.guard import Guard


def fixed(**params: object) -> Guard:
    """The policy with these parameters, behind a guard."""
    return guarded(build(resolve("scale", "fixed"), params))


def test_as_many_as_asked_for_whatever_the_load() -> None:
    """Neither more at a high rate nor fewer at none; what they cannot take is unplaced."""
    policy = fixed(replicas=3, cpu=4.0, gpu=20.0, batch=4)
    for rate, unplaced in ((0, 0), (100, 0), (1000, 1000 - 3 * 4 / 0.088)):
        planning = policy.plan(snapshot(load(rate)))
        assert {"b4-c4-g20": 3} == counts(planning.plans["classify"])
        assert pytest.approx(unplaced) == planning.unplaced.get("classify", 0)


def test_what_is_not_named_is_as_the_model_knows_it() -> None:
    """The smallest size, and the batch that takes most with room for the one before it."""
    plan = fixed().plan(snapshot(load(1))).plans["classify"]
    assert {"b1-c2": 1} == counts(plan)
    linear = fixed().plan(snapshot(load(1, model=Linear(0.04, 0.0099))))
    assert {"b6-c1": 1} == counts(linear.plans["classify"])


def test_a_part_of_a_size_can_be_named() -> None:
    """With 10 % of a GPU named, batches of two take the most within the objective."""
    assert {"b2-c2-g10": 1} == counts(fixed(gpu=10.0).plan(snapshot(load(1))).plans["classify"])


def test_sizes_between_those_measured_are_interpolated() -> None:
    """35 % of a GPU lie between 20 and 50."""
    between = given_size(load(1), cpu=4.0, gpu=35.0, batch=4)
    assert between is not None
    assert pytest.approx(0.080) == between.exec_s


def test_a_late_batch_is_planned_and_told() -> None:
    """A user who asks for it gets it."""
    plan = fixed(cpu=2.0, gpu=0.0, batch=2).plan(snapshot(load(1))).plans["classify"]
    assert "A batch takes 230 ms, the objective is 200." in plan.explain
    assert 0 == plan.routes[0].max_wait_s


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"batch": 999}, "The policy asks for batches of 999, expected at most 4 for this model."),
        ({"gpu": 0.0}, "The policy asks for a size of no GPU, which the model does not have"),
    ],
)
def test_the_parameter_that_asks_too_much_is_told(params: dict[str, float], reason: str) -> None:
    """A batch is not said to be a matter of cores."""
    model = Table({Configuration(1, 2.0, 10.0): 0.05, Configuration(4, 2.0, 10.0): 0.09})
    planning = fixed(**params).plan(snapshot(load(7, model=model)))
    assert reason in planning.reasons["classify"]


def test_the_wait_is_what_the_objective_leaves() -> None:
    """Unless one is named."""
    assert (
        pytest.approx(0.05)
        == fixed().plan(snapshot(load(1))).plans["classify"].routes[0].max_wait_s
    )
    named = fixed(wait_s=0.01).plan(snapshot(load(1))).plans["classify"]
    assert 0.01 == named.routes[0].max_wait_s


def test_a_size_the_model_does_not_know_is_unplaced() -> None:
    """There is no plan, and all of the rate is unplaced."""
    planning = fixed(cpu=64.0).plan(snapshot(load(7)))
    assert ({}, {"classify": 7}) == (planning.plans, planning.unplaced)


def test_without_room_there_are_fewer() -> None:
    """Two of five fit on four cores."""
    planning = fixed(replicas=5).plan(snapshot(load(30), cluster=servers(1, 4, 0)))
    assert 2 == instances(planning)
    assert "There is no capacity for 3 more." in planning.plans["classify"].explain


def test_bounds_come_first() -> None:
    """The function's, not the parameter's."""
    assert 2 == instances(fixed(replicas=9).plan(snapshot(load(1, bounds=(0, 2)))))
    assert 4 == instances(fixed().plan(snapshot(load(1, bounds=(4, None)))))


def test_a_second_round_changes_nothing() -> None:
    """What is there is not placed again."""
    rounds = Rounds(fixed(replicas=2), [load(1, model=CLASSIFIER)], servers(1, 4, 0).nodes)
    first = rounds.plan(0.0, {"classify": 1.0})
    assert first.plans == rounds.plan(10.0, {"classify": 100.0}).plans


@pytest.mark.parametrize(
    "params", [{"replicas": -1}, {"batch": 0}, {"cpu": -2.0}, {"wait_s": -0.1}]
)
def test_parameters_are_checked(params: dict[str, object]) -> None:
    """What cannot be is refused by name."""
    with pytest.raises(ConfigError, match=next(iter(params))):
        fixed(**params)
