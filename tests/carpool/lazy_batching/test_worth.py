"""Joining pays where a batch saves time, and only there."""

from __future__ import annotations

import pytest

from carpool.lazy_batching.batch_table import Entry
from carpool.lazy_batching.job import Job
from carpool.lazy_batching.join_decision import best_size, could_pay, pays
from carpool.lazy_batching.program import Node, NodeType, Program, RemainingRuns
from tests.carpool.lazy_batching.drive import Drive, program


@pytest.mark.parametrize(
    ("per_item", "could"), [(0.0, True), (0.25, True), (0.95, False), (1.0, False)]
)
def test_joining_can_pay_only_if_batches_are_cheap(*, per_item: float, could: bool) -> None:
    """Joining could pay only if a batch of b, at 1 + per_item (b - 1) times one, is cheap enough.

    The paper has a per_item of 0.25.
    """
    assert could is could_pay(program(*[1.0] * 8, batch_max=8, per_item=per_item))


def test_no_join_with_single_node_or_batch_size_one() -> None:
    """A model of one node has no boundary at which to join, and a batch of one has no room."""
    assert not could_pay(program(1.0, batch_max=8))
    assert not could_pay(program(1.0, 1.0, batch_max=1))


@pytest.mark.parametrize(("per_item", "expected"), [(0.1, True), (1.0, False)])
@pytest.mark.parametrize("rate_rps", [0.0, 1.0, 1e9])
def test_request_does_not_wait_if_batching_saves_no_time(
    *, per_item: float, expected: bool, rate_rps: float
) -> None:
    """If one batch of all requests saves no time, a request does not wait for others to join."""
    model = program(*[1.0] * 8, batch_max=8, per_item=per_item)
    stack = [Entry([Job(0, model, 0.0)], 1, 1)]

    assert expected is pays(stack, [Job(1, model, 1.0)], rate_rps)


def test_waiting_request_joins_once_others_have_left() -> None:
    """A join that would delay three requests by an encoder of 20 pays once two have left."""
    nodes = [Node([20.0] * 4), Node([1.0, 1.1, 1.2, 1.3], NodeType.DECODER)]
    model = Program("words", nodes)
    jobs = [Job(n, model, 0.0, left=RemainingRuns(1, 40)) for n in range(3)]
    newcomer = Job(3, model, 22.0, left=RemainingRuns(1, 40))
    drive = Drive(lengths={0: 40, 1: 10, 2: 10, 3: 5}).run([*jobs, newcomer])
    began = next(at for at, members in drive.batches if 3 in members)

    assert drive.ended[1] == drive.ended[2] <= began < drive.ended[0]


def test_join_pays_if_it_reduces_number_of_late_requests() -> None:
    """A join that makes one running request late pays if it saves two newcomers from being late."""
    model = program(*[1.0] * 8, batch_max=8, per_item=0.3)
    running = Job(0, model, 0.0, deadline=9.0)
    newcomers = [Job(number, model, 1.0, deadline=14.0) for number in (1, 2)]
    stack = [Entry([running], 1, 1)]

    assert pays(stack, newcomers, now=1.0)
    for job in newcomers:
        job.deadline = 99.0
    assert not pays(stack, newcomers, now=1.0)


def test_idle_device_takes_all_unless_more_would_be_late() -> None:
    """An idle device takes all requests, unless a smaller batch makes fewer of them late."""
    model = program(1.0, batch_max=8, per_item=0.7)
    waiting = [Job(number, model, 0.0) for number in range(8)]
    assert 8 == best_size(waiting, 8, now=0.0)

    for job in waiting:
        job.deadline = 4.0  # four are in time, in one batch or in two, and none of eight
    assert 4 == best_size(waiting, 8, now=0.0)
