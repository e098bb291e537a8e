"""Whether joining pays: where a batch saves time, and only there."""

from __future__ import annotations

import pytest

from carpool.lazy_batching.job import Job
from carpool.lazy_batching.join_decision import best_size, could_pay, pays
from carpool.lazy_batching.program import Node, NodeType, Program, RemainingRuns
from carpool.lazy_batching.table import Entry
from tests.carpool.lazy_batching.drive import Drive, program


@pytest.mark.parametrize(
    ("per_item", "could"), [(0.0, True), (0.25, True), (0.95, False), (1.0, False)]
)
def test_whether_a_request_could_gain_by_joining(*, per_item: float, could: bool) -> None:
    """A batch of b takes 1 + per_item (b - 1) times as long as one; 0.25 is the paper's."""
    assert could is could_pay(program(*[1.0] * 8, batch_max=8, per_item=per_item))


def test_no_request_joins_a_model_of_one_node_or_batches_of_one() -> None:
    """There is no boundary inside of the one, and no room in the other."""
    assert not could_pay(program(1.0, batch_max=8))
    assert not could_pay(program(1.0, 1.0, batch_max=1))


@pytest.mark.parametrize(("per_item", "expected"), [(0.1, True), (1.0, False)])
@pytest.mark.parametrize("rate_rps", [0.0, 1.0, 1e9])
def test_many_others_make_no_gain_of_a_loss(
    *, per_item: float, expected: bool, rate_rps: float
) -> None:
    """Later requests need not wait for others if one batch of them all saves nothing."""
    model = program(*[1.0] * 8, batch_max=8, per_item=per_item)
    stack = [Entry([Job(0, model, 0.0)], 1, 1)]

    assert expected is pays(stack, [Job(1, model, 1.0)], rate_rps)


def test_a_request_that_had_to_wait_joins_as_soon_as_another_leaves() -> None:
    """An encoder of 20 keeps three waiting longer than one gains; not so when two have left."""
    nodes = [Node([20.0] * 4), Node([1.0, 1.1, 1.2, 1.3], NodeType.DECODER)]
    model = Program("words", nodes)
    jobs = [Job(n, model, 0.0, left=RemainingRuns(1, 40)) for n in range(3)]
    newcomer = Job(3, model, 22.0, left=RemainingRuns(1, 40))
    drive = Drive(lengths={0: 40, 1: 10, 2: 10, 3: 5}).run([*jobs, newcomer])
    began = next(at for at, members in drive.batches if 3 in members)

    assert drive.ended[1] == drive.ended[2] <= began < drive.ended[0]


def test_the_late_are_counted_on_both_sides() -> None:
    """A newcomer would make a running request late; without joining, two newcomers are."""
    model = program(*[1.0] * 8, batch_max=8, per_item=0.3)
    running = Job(0, model, 0.0, deadline=9.0)
    newcomers = [Job(number, model, 1.0, deadline=14.0) for number in (1, 2)]
    stack = [Entry([running], 1, 1)]

    assert pays(stack, newcomers, now=1.0)
    for job in newcomers:
        job.deadline = 99.0
    assert not pays(stack, newcomers, now=1.0)


def test_an_idle_device_takes_all_that_wait_unless_that_makes_more_of_them_late() -> None:
    """Small batches would have a smaller mean now, and answer fewer in a second."""
    model = program(1.0, batch_max=8, per_item=0.7)
    waiting = [Job(number, model, 0.0) for number in range(8)]
    assert 8 == best_size(waiting, 8, now=0.0)

    for job in waiting:
        job.deadline = 4.0  # four are in time, in one batch or in two, and none of eight
    assert 4 == best_size(waiting, 8, now=0.0)
