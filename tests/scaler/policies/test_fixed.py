"""The policy with a fixed number of instances of one size."""

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
    """Return the policy with these parameters, behind a guard."""
    return guarded(build(resolve("scale", "fixed"), params))


def test_replica_count_is_fixed_at_any_load() -> None:
    """The number of instances is fixed at any load; the rate above their capacity is unplaced."""
    policy = fixed(replicas=3, cpu=4.0, gpu=20.0, batch=4)
    for rate, unplaced in ((0, 0), (100, 0), (1000, 1000 - 3 * 4 / 0.088)):
        planning = policy.plan(snapshot(load(rate)))
        assert {"b4-c4-g20": 3} == counts(planning.plans["classify"])
        assert pytest.approx(unplaced) == planning.unplaced.get("classify", 0)


def test_default_is_smallest_size_with_best_batch() -> None:
    """The default is the smallest size, with the batch of the highest rate within the objective."""
    plan = fixed().plan(snapshot(load(1))).plans["classify"]
    assert {"b1-c2": 1} == counts(plan)
    linear = fixed().plan(snapshot(load(1, model=Linear(0.04, 0.0099))))
    assert {"b6-c1": 1} == counts(linear.plans["classify"])


def test_batch_is_chosen_for_given_gpu_share() -> None:
    """With only 10 % of a GPU given, the batch has the highest rate within the objective."""
    assert {"b2-c2-g10": 1} == counts(fixed(gpu=10.0).plan(snapshot(load(1))).plans["classify"])


def test_sizes_between_those_measured_are_interpolated() -> None:
    """A size between measured ones has an interpolated execution time."""
    between = given_size(load(1), cpu=4.0, gpu=35.0, batch=4)
    assert between is not None
    assert pytest.approx(0.080) == between.exec_s


def test_batch_that_misses_objective_is_planned_and_explained() -> None:
    """A requested batch that misses the objective is planned and explained."""
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
def test_reason_names_parameter_that_exceeds_model(params: dict[str, float], reason: str) -> None:
    """The reason names the parameter that exceeds the model."""
    model = Table({Configuration(1, 2.0, 10.0): 0.05, Configuration(4, 2.0, 10.0): 0.09})
    planning = fixed(**params).plan(snapshot(load(7, model=model)))
    assert reason in planning.reasons["classify"]


def test_wait_is_remaining_time_of_objective() -> None:
    """The wait is what the objective leaves unless it is given."""
    assert (
        pytest.approx(0.05)
        == fixed().plan(snapshot(load(1))).plans["classify"].routes[0].max_wait_s
    )
    named = fixed(wait_s=0.01).plan(snapshot(load(1))).plans["classify"]
    assert 0.01 == named.routes[0].max_wait_s


def test_rate_of_unknown_size_is_unplaced() -> None:
    """A size unknown to the model gives no plan, and all of the rate is unplaced."""
    planning = fixed(cpu=64.0).plan(snapshot(load(7)))
    assert ({}, {"classify": 7}) == (planning.plans, planning.unplaced)


def test_limited_room_gives_fewer_instances() -> None:
    """Two of five instances fit on four cores."""
    planning = fixed(replicas=5).plan(snapshot(load(30), cluster=servers(1, 4, 0)))
    assert 2 == instances(planning)
    assert "There is no capacity for 3 more." in planning.plans["classify"].explain


def test_function_bounds_override_parameter() -> None:
    """The function's bounds override the parameter."""
    assert 2 == instances(fixed(replicas=9).plan(snapshot(load(1, bounds=(0, 2)))))
    assert 4 == instances(fixed().plan(snapshot(load(1, bounds=(4, None)))))


def test_a_second_round_changes_nothing() -> None:
    """Existing instances are not placed again in the next round."""
    rounds = Rounds(fixed(replicas=2), [load(1, model=CLASSIFIER)], servers(1, 4, 0).nodes)
    first = rounds.plan(0.0, {"classify": 1.0})
    assert first.plans == rounds.plan(10.0, {"classify": 100.0}).plans


@pytest.mark.parametrize(
    "params", [{"replicas": -1}, {"batch": 0}, {"cpu": -2.0}, {"wait_s": -0.1}]
)
def test_parameters_are_checked(params: dict[str, object]) -> None:
    """Invalid parameters are refused with an error that names them."""
    with pytest.raises(ConfigError, match=next(iter(params))):
        fixed(**params)
