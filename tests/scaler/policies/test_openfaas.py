"""The policy `openfaas`: replicas by requests per second, as OpenFaaS does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from carpool.errors import ConfigError
from carpool.latency.linear import Linear
from carpool.plugins import build, resolve
from tests.scaler.loads import counts, guarded, instances, load, servers, snapshot

if TYPE_CHECKING:
    from scaler.control.guard import Guard


def openfaas(**params: object) -> Guard:
    """Return the policy with these parameters, behind a guard."""
    return guarded(build(resolve("scale", "openfaas"), params))


def ladder(policy: Guard, *steps: tuple[float, float]) -> list[int]:
    """Return the number of instances after each step of time and rate."""
    return [instances(policy.plan(snapshot(load(rate), now_s=now_s))) for now_s, rate in steps]


def test_instances_are_identical_and_serve_one_request_each() -> None:
    """Instances have two cores and a tenth of a GPU, as in INFless, and stay for five minutes."""
    plan = openfaas().plan(snapshot(load(100))).plans["classify"]
    (kind,) = plan.classes
    assert (2, 10, 1) == (kind.cpu, kind.gpu, kind.batch_size)
    assert (300, 0) == (plan.keep_alive_s, plan.routes[0].max_wait_s)


def test_replicas_follow_rate() -> None:
    """At 60 ms per request, an instance gets 15 requests/s, nine tenths of its capacity."""
    assert [7, 6, 1, 1] == [ladder(openfaas(), (0, rate))[0] for rate in (91, 90, 10, 0)]


def test_target_rate_can_be_set() -> None:
    """With a target of 5 requests/s and no reserve, 21 requests/s need five instances."""
    assert [5] == ladder(openfaas(target_rps=5.0, proportion=1.0), (0, 21))


def test_replicas_are_removed_after_stable_window() -> None:
    """Instances are added at once, and removed when fewer have sufficed for the whole window."""
    steps = ((0, 15), (10, 150), (20, 30), (39, 45), (49, 15), (50, 15), (69, 15), (79, 15))
    assert [1, 10, 10, 10, 10, 3, 3, 1] == ladder(openfaas(stable_s=30.0), *steps)


def test_alert_rule_scales_in_steps_and_resets_to_minimum() -> None:
    """By alerts, above 5 requests/s one instance is added every 30 s, up to five.

    As the Community Edition does.
    """
    steps = ((0, 9), (4, 9), (5, 9), (20, 9), (35, 9), (65, 9), (95, 9), (125, 99), (130, 5))
    assert [1, 1, 2, 2, 3, 4, 5, 5, 1] == ladder(openfaas(rule="alert"), *steps)


def test_step_is_proportion_of_maximum() -> None:
    """With a maximum of 20, a step is a fifth of it, four."""
    policy = openfaas(rule="alert", max_replicas=20)
    assert [1, 5, 9, 13, 17, 20] == ladder(policy, *((30.0 * n + 5 * (n > 0), 9) for n in range(6)))


def test_bounds() -> None:
    """The tighter of the parameters' and the function's bounds applies."""
    policy = openfaas(min_replicas=2, max_replicas=4)
    assert [2, 4] == ladder(policy, (0, 0), (1, 1000))
    assert 3 == instances(openfaas().plan(snapshot(load(1000, bounds=(0, 3)))))


def test_rate_without_room_is_unplaced() -> None:
    """Eight cores hold four instances, and the rate beyond their capacity is unplaced."""
    planning = openfaas().plan(snapshot(load(150), cluster=servers(1, 8, 1)))
    assert {"b1-c2-g10": 4} == counts(planning.plans["classify"])
    assert pytest.approx(150 - 4 / 0.06) == planning.unplaced["classify"]


def test_rate_of_unknown_size_is_unplaced() -> None:
    """A size unknown to the model gives no plan; the reason names it and the model's sizes."""
    planning = openfaas(gpu=70.0).plan(snapshot(load(10)))
    assert ({}, {"classify": 10}) == (planning.plans, planning.unplaced)
    reason = planning.reasons["classify"]
    assert "a size of 2 cores and 70 % of a GPU, which the model does not have" in reason
    assert "its sizes are 2 cores; 2 cores and 10 % of a GPU; 4 cores and 20 % of" in reason
    assert {} == openfaas().plan(snapshot(load(150), cluster=servers(1, 1, 1))).reasons


def test_function_state_survives_round_without_it() -> None:
    """The state of a function survives a round without it."""
    policy = openfaas(stable_s=60.0)
    assert [10] == ladder(policy, (0, 150))
    policy.plan(snapshot(load(1, name="other"), now_s=10.0))
    assert [10] == ladder(policy, (20, 1))


@pytest.mark.parametrize(
    "params",
    [
        {"cpu": 0.0},
        {"proportion": 0.0},
        {"repeat_s": 0.0},
        {"stable_s": -1.0},
        {"max_replicas": 0},
        {"rule": "latency"},
    ],
)
def test_parameters_are_checked(params: dict[str, object]) -> None:
    """Invalid parameters are refused with an error that names them."""
    with pytest.raises(ConfigError, match=next(iter(params))):
        openfaas(**params)


def test_no_gpu_is_planned_if_none_is_available() -> None:
    """No GPU is planned if no server has one or the model has no sizes with one."""
    (kind,) = (
        openfaas().plan(snapshot(load(10), cluster=servers(2, gpus=0))).plans["classify"].classes
    )
    assert (2, 0) == (kind.cpu, kind.gpu)
    model = Linear(0.02, 0.002, cpu=0.5)
    (kind,) = openfaas().plan(snapshot(load(10, model=model))).plans["classify"].classes
    assert (0.5, 0) == (kind.cpu, kind.gpu)
