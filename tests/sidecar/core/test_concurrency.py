"""Instances that work on several batches at once: what they are sent, and what they die of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecar.core.batch import Fault
from sidecar.core.batcher import Batcher
from sidecar.core.dispatch import Upstream
from sidecar.core.request import Request, State
from sidecar.policies.deadline import Deadline
from sidecar.policies.fixed import FixedWindow

if TYPE_CHECKING:
    from sidecar.core.policy import BatchPolicy


DEADLINE = Deadline(Deadline.Params())
WINDOW = FixedWindow(FixedWindow.Params())


def batcher(at_once: int, policy: BatchPolicy = DEADLINE) -> Batcher:
    """A batcher with one instance."""
    made = Batcher(policy, batch_max=4, queue_max=100)
    made.upstreams.add(Upstream("a", 4, up=True, concurrency=at_once))
    return made


def sizes(made: Batcher, count: int, now: float = 0.0) -> list[int]:
    """Let so many come, and return the sizes of the batches that leave."""
    for number in range(count):
        made.admit(Request(number, "k", now), now)
    return [batch.item_count for batch in made.step(now).send]


@pytest.mark.parametrize("policy", [DEADLINE, WINDOW], ids=["deadline", "fixed"])
def test_requests_leave_one_by_one_while_there_is_room(policy: BatchPolicy) -> None:
    """Each is answered when it is done; a window would only keep them waiting."""
    assert [1, 1, 1] == sizes(batcher(8, policy), 3)


def test_batches_grow_when_room_is_scarce() -> None:
    """None waits while there is capacity, and no batch is larger than it may be."""
    assert [2, 2, 2] == sizes(batcher(3), 6)
    assert [4, 4, 4] == sizes(batcher(3), 20)


def test_never_more_than_it_takes_at_once() -> None:
    """The rest waits in the sidecar, where deadlines and limits are kept."""
    made = batcher(2)

    assert 2 == len(sizes(made, 20))
    assert not made.step(1.0).send


def test_execution_times_are_each_batchs_own() -> None:
    """One that returns between another's sending and return takes nothing from its time."""
    made = batcher(2)
    sizes(made, 1)
    first = next(iter(made._in_flight))
    made.admit(Request(9, "k", 1.0), 1.0)
    (second,) = made.step(1.0).send
    made.finished(second, [False], 3.0)
    made.finished(first, [False], 5.0)

    assert (2.0, 5.0) == (second.exec_s, first.exec_s)


def test_who_was_there_when_it_died_gets_the_instance_for_itself() -> None:
    """Any of the batches can have been the cause: only the one that is, fails."""
    made = batcher(3)
    for number in range(3):
        made.admit(Request(number, "k", 0.0), 0.0)
    for batch in made.step(0.0).send:
        assert [] == made.broken(batch, Fault.DIED, 1.0)
    ends: list[tuple[int, State]] = []
    deaths = 0
    while sent := made.step(2.0).send:
        (batch,) = sent
        (request,) = batch.requests
        if request.id == 1:
            deaths += 1
            ended = made.broken(batch, Fault.DIED, 3.0)
        else:
            ended = made.finished(batch, [False], 3.0)
        ends += [(each.id, each.state) for each in ended]

    assert [(0, State.DONE), (2, State.DONE), (1, State.FAILED)] == ends
    assert 3 == deaths


def test_who_may_be_deadly_waits_until_an_instance_has_nothing_else() -> None:
    """Busy ones are given no more until one of them is idle; then all continue as usual."""
    made = batcher(2)
    made.upstreams.add(Upstream("b", 4, up=True, concurrency=2))
    sent = []
    for number in range(3):
        made.admit(Request(number, "k", 0.0), 0.0)
        sent += made.step(0.0).send
    first, second, third = sent
    assert ["a", "b", "a"] == [batch.upstream.name for batch in sent]
    made.broken(second, Fault.DIED, 1.0)
    second.upstream.up = False
    made.admit(Request(3, "k", 1.0), 1.0)
    made.finished(first, [False], 1.0)
    assert not made.step(1.0).send
    made.finished(third, [False], 2.0)
    (alone,) = made.step(2.0).send
    assert second.requests == alone.requests
    made.finished(alone, [False], 3.0)
    made.admit(Request(4, "k", 3.0), 3.0)
    assert [[3], [4]] == [[r.id for r in batch.requests] for batch in made.step(3.0).send]


def test_no_request_is_promised_a_time_while_there_is_room() -> None:
    """A forecast is for requests that have to wait; it counts what is done at once."""
    made = batcher(2)
    upstream = next(iter(made.upstreams))
    for _ in range(10):
        upstream.exec_time.observe(1, 0.1)
    sizes(made, 1)
    early = made.finish_predictor.finish_at(0.0)
    made.admit(Request(7, "k", 0.0), 0.0)
    made.step(0.0)

    assert 0.0 == early
    assert 0.2 == pytest.approx(made.finish_predictor.finish_at(0.0))
