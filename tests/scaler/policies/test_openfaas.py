"""What OpenFaaS does: replicas by requests per second."""

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
    """The policy with these parameters, behind a guard."""
    return guarded(build(resolve("scale", "openfaas"), params))


def ladder(policy: Guard, *steps: tuple[float, float]) -> list[int]:
    """Instances after each step of time and rate."""
    return [instances(policy.plan(snapshot(load(rate), now_s=now_s))) for now_s, rate in steps]


def test_instances_are_alike_and_take_one_request_each() -> None:
    """Two cores and a tenth of a GPU, as INFless gave it, kept for five minutes."""
    plan = openfaas().plan(snapshot(load(100))).plans["classify"]
    (kind,) = plan.classes
    assert (2, 10, 1) == (kind.cpu, kind.gpu, kind.batch_size)
    assert (300, 0) == (plan.keep_alive_s, plan.routes[0].max_wait_s)


def test_replicas_by_the_rate() -> None:
    """60 ms are 16.7 requests a second, of which an instance is to get nine tenths: 15."""
    assert [7, 6, 1, 1] == [ladder(openfaas(), (0, rate))[0] for rate in (91, 90, 10, 0)]


def test_a_target_of_ones_own() -> None:
    """At 5 requests/s for each and no reserve, 21 are five."""
    assert [5] == ladder(openfaas(target_rps=5.0, proportion=1.0), (0, 21))


def test_fewer_only_after_a_while() -> None:
    """More at once; fewer when that has been enough for the whole window."""
    steps = ((0, 15), (10, 150), (20, 30), (39, 45), (49, 15), (50, 15), (69, 15), (79, 15))
    assert [1, 10, 10, 10, 10, 3, 3, 1] == ladder(openfaas(stable_s=30.0), *steps)


def test_alerts_go_in_steps_and_fall_to_the_least() -> None:
    """The Community Edition: above five requests a second a step of one every 30 s, up to five."""
    steps = ((0, 9), (4, 9), (5, 9), (20, 9), (35, 9), (65, 9), (95, 9), (125, 99), (130, 5))
    assert [1, 1, 2, 2, 3, 4, 5, 5, 1] == ladder(openfaas(rule="alert"), *steps)


def test_a_step_is_a_part_of_the_most() -> None:
    """A fifth of 20 is four."""
    policy = openfaas(rule="alert", max_replicas=20)
    assert [1, 5, 9, 13, 17, 20] == ladder(policy, *((30.0 * n + 5 * (n > 0), 9) for n in range(6)))


def test_bounds() -> None:
    """The parameters' and the function's, whichever is tighter."""
    policy = openfaas(min_replicas=2, max_replicas=4)
    assert [2, 4] == ladder(policy, (0, 0), (1, 1000))
    assert 3 == instances(openfaas().plan(snapshot(load(1000, bounds=(0, 3)))))


def test_without_room_the_rest_is_unplaced() -> None:
    """Eight cores hold four; 60 ms each is 67 requests/s."""
    planning = openfaas().plan(snapshot(load(150), cluster=servers(1, 8, 1)))
    assert {"b1-c2-g10": 4} == counts(planning.plans["classify"])
    assert pytest.approx(150 - 4 / 0.06) == planning.unplaced["classify"]


def test_a_size_the_model_does_not_know_is_unplaced() -> None:
    """There is no plan for it, and the size asked for and those of the model are named."""
    planning = openfaas(gpu=70.0).plan(snapshot(load(10)))
    assert ({}, {"classify": 10}) == (planning.plans, planning.unplaced)
    reason = planning.reasons["classify"]
    assert "a size of 2 cores and 70 % of a GPU, which the model does not have" in reason
    assert "its sizes are 2 cores; 2 cores and 10 % of a GPU; 4 cores and 20 % of" in reason
    assert {} == openfaas().plan(snapshot(load(150), cluster=servers(1, 1, 1))).reasons


def test_functions_are_remembered_apart() -> None:
    """A round without a function forgets nothing of it."""
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
    """What cannot be is refused by name."""
    with pytest.raises(ConfigError, match=next(iter(params))):
        openfaas(**params)


def test_no_gpu_is_assumed_where_there_is_none() -> None:
    """Neither on servers without any, nor of a model that is not known on one."""
    (kind,) = (
        openfaas().plan(snapshot(load(10), cluster=servers(2, gpus=0))).plans["classify"].classes
    )
    assert (2, 0) == (kind.cpu, kind.gpu)
    model = Linear(0.02, 0.002, cpu=0.5)
    (kind,) = openfaas().plan(snapshot(load(10, model=model))).plans["classify"].classes
    assert (0.5, 0) == (kind.cpu, kind.gpu)
