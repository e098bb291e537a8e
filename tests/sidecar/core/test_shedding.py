"""Refusal on arrival of requests that would be late, in simulated time."""

from __future__ import annotations

import math
import random

import pytest

from sidecar.core.admission.shedding import ClassShedding, Shedding
from sidecar.core.batcher import Batcher
from sidecar.core.dispatch import Upstream
from sidecar.core.request import Request, State
from sidecar.policies.deadline import Deadline
from sidecar.testing import Arrival, Drive, End, ScriptedFunction
from tests.effort import scaled

WIDE = ScriptedFunction(lambda size: 0.0024 + 0.00027 * size)
CAPACITY = 32 / WIDE.exec_s(32)
SPAN_S = scaled(4)  # of arrivals


def overloaded(times: float, shedding: Shedding) -> tuple[Drive, list[End]]:
    """Run ``times`` the capacity for a while, with an objective of 100 ms."""
    drive = Drive(Deadline(Deadline.Params()), WIDE, shedding=shedding)
    span_s = SPAN_S / 2
    count = int(span_s * times * CAPACITY)
    return drive, drive.run([Arrival(span_s * i / count, 0.1) for i in range(count)])


def poisson(
    chance: random.Random, rate_rps: float, budget_s: float, *, background: bool = False
) -> list[Arrival]:
    """Return Poisson arrivals."""
    arrivals, at = [], chance.expovariate(rate_rps)
    while at < SPAN_S:
        arrivals.append(Arrival(at, budget_s, background=background))
        at += chance.expovariate(rate_rps)
    return arrivals


def test_accepted_requests_keep_their_objective_at_twice_the_capacity() -> None:
    """At twice the capacity, 97 % of accepted requests are in time, using 85 % of the capacity."""
    _, ends = overloaded(2.0, Shedding("on", cap=0.9))
    accepted = [end for end in ends if end.state is not State.REFUSED]
    in_time = [e for e in accepted if e.state is State.DONE and e.at <= e.request.deadline]
    assert len(in_time) > 0.97 * len(accepted)
    assert len(in_time) > 0.85 * SPAN_S / 2 * CAPACITY


def test_margin_covers_variance_of_execution_times() -> None:
    """With execution times that scatter by a tenth, under 1 % of accepted requests are late."""
    chance = random.Random(1)
    scattering = ScriptedFunction(lambda size: WIDE.exec_s(size) * (1 + chance.expovariate(10)))
    drive = Drive(Deadline(Deadline.Params()), scattering, shedding=Shedding("on", cap=0.9))
    span_s = max(2, SPAN_S)
    count = int(span_s * 2 * CAPACITY)
    ends = drive.run([Arrival(span_s * i / count, 0.1) for i in range(count)])
    accepted = [e for e in ends if e.state is not State.REFUSED and e.request.arrived > 1]
    in_time = [e for e in accepted if e.state is State.DONE and e.at <= e.request.deadline]
    assert len(in_time) > 0.99 * len(accepted)
    assert len(in_time) > 0.8 * (span_s - 1) * CAPACITY


@pytest.mark.parametrize(("refused", "share"), [(0, 1 / 8), (10, 1 / 8), (20, 1 / 4)])
def test_margin_is_at_most_a_part_of_budget(refused: int, share: float) -> None:
    """However wrong predictions are, the margin is an eighth; a quarter if many are refused."""
    interactive = ClassShedding()
    for number in range(100):
        interactive.refuses_late(1.0 if number < refused else 0.0, 0.0)
    for _ in range(100):
        interactive.learn(math.inf, exec_s=0.01, budget_s=0.4)
    margins = interactive.margin(1.0, 0.0), interactive.margin(0.08, 0.0)
    assert pytest.approx((share * 0.4, share * 0.08)) == margins
    for _ in range(20_000):
        interactive.learn(-1.0, exec_s=0.01, budget_s=0.4)
    assert 0.0 == interactive.margin(1.0, 0.0)


def test_late_request_with_tiny_budget_does_not_change_margin() -> None:
    """A late request with a tiny budget does not change the margin of the others."""
    interactive = ClassShedding()
    interactive.learn(0.03, exec_s=0.05, budget_s=0.4)
    interactive.learn(math.inf, exec_s=0.05, budget_s=0.001)
    assert 0.03 == interactive.margin(0.4, 0.0)


def test_background_flood_does_not_refuse_interactive_requests() -> None:
    """A flood of background requests with deadlines causes no refusal of an interactive one."""
    chance = random.Random(1)
    drive = Drive(Deadline(Deadline.Params()), WIDE, shedding=Shedding("on"))
    ends = drive.run(
        [*poisson(chance, CAPACITY / 2, 0.1), *poisson(chance, 2500, 0.3, background=True)]
    )
    interactive = [end for end in ends if not end.request.background]
    assert {State.DONE} == {end.state for end in interactive}
    assert all(end.at <= end.request.deadline for end in interactive)


def test_no_request_is_refused_while_instance_is_idle() -> None:
    """While an instance is idle every request is admitted, so that shorter times are learned."""
    batcher = Batcher(
        Deadline(Deadline.Params()), batch_max=4, queue_max=10, shedding=Shedding("on", cap=1.0)
    )
    upstream = Upstream("a", 4, up=True)
    batcher.upstreams.add(upstream)
    for size in (1, 2, 3, 4) * 5:
        upstream.exec_time.observe(size, 1.0)
    for number in range(60):
        now = float(number)
        assert batcher.admit(Request(number, "k", now, deadline=now + 0.1), now) is None
        (batch,) = batcher.step(now).send
        batcher.finished(batch, [False], now + 0.01)
    assert upstream.exec_time.mean(1) < 0.1


def test_observe_mode_counts_late_requests_without_refusing() -> None:
    """In the mode ``observe``, late requests are counted but none is refused."""
    drive, ends = overloaded(2.0, Shedding("observe"))
    assert drive.batcher.shedding.late > 100
    refused = [end for end in ends if end.state is State.REFUSED]
    assert [] == refused


def test_nothing_is_refused_below_the_capacity() -> None:
    """At 80 % of the capacity no request is refused."""
    _, ends = overloaded(0.8, Shedding("on", cap=0.9))
    assert {State.DONE} == {end.state for end in ends}


def test_share_of_refused_requests_per_window_is_limited() -> None:
    """Even if all requests are predicted late, a fifth is admitted to correct the prediction."""
    shedding = Shedding("on", cap=0.8)
    interactive_class, late = shedding.interactive, Request(1, "k", 0.0, deadline=0.1)
    late.predicted_finish = 0.2
    refused = sum(
        interactive_class.refuses(late, shedding.refused_share_max, 0.001 * i) for i in range(1000)
    )
    assert (800, 1000) == (refused, shedding.late)
    assert interactive_class.refuses(late, shedding.refused_share_max, 20.0)


def test_predicted_finish_is_now_before_first_batch() -> None:
    """Before the first batch has run, the predicted finish is now."""
    batcher = Batcher(Deadline(Deadline.Params()), batch_max=32, queue_max=10)
    assert 5.0 == batcher.finish_predictor.finish_at(5.0)


def test_hardly_any_request_is_refused_after_overload() -> None:
    """After an overload, fewer than 2 % of the requests of a low load are refused."""
    chance = random.Random(3)
    spiky = ScriptedFunction(lambda size: WIDE.exec_s(size) + 0.08 * (chance.random() < 0.02))
    drive = Drive(Deadline(Deadline.Params()), spiky, shedding=Shedding("on"))
    count = int(SPAN_S * 2 * CAPACITY)
    storm = [Arrival(SPAN_S * i / count, 0.02) for i in range(count)]
    calm = [Arrival(SPAN_S + 0.005 * i, 0.02) for i in range(2000)]
    ends = drive.run(storm + calm)
    afterwards = [end for end in ends if end.request.arrived >= SPAN_S + 1]
    refused = [end for end in afterwards if end.state is State.REFUSED]
    assert len(refused) < 0.02 * len(afterwards)


def scattered(mode: str, times: float) -> float:
    """Return the share answered within 100 ms, with execution times that scatter by a fifth."""
    chance = random.Random(1)
    function = ScriptedFunction(
        lambda size: (0.0125 + 0.00062 * size) * (1 + chance.expovariate(5))
    )
    capacity = 32 / (1.2 * (0.0125 + 0.00062 * 32))
    drive = Drive(Deadline(Deadline.Params()), function, shedding=Shedding(mode))
    ends = drive.run(poisson(random.Random(2), times * capacity, 0.1))
    counted = [end for end in ends if end.request.arrived > SPAN_S / 4]
    in_time = [e for e in counted if e.state is State.DONE and e.at <= e.request.deadline]
    return len(in_time) / len(counted)


@pytest.mark.parametrize("times", [2.0, 5.0])
@pytest.mark.parametrize("mode", ["off", "on"])
def test_requests_bound_to_miss_deadline_are_not_sent(mode: str, times: float) -> None:
    """Requests that cannot be in time make room for others, with or without refusals on arrival."""
    assert scattered(mode, times) > 0.85 / times


def test_shedding_below_capacity_hardly_costs_requests_in_time() -> None:
    """At 90 % of the capacity, shedding costs at most 0.1 % of the requests in time."""
    assert scattered("on", 0.9) > scattered("off", 0.9) - 0.001
