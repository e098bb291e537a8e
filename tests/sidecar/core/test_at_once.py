"""Instances that work on several batches at once: what they are sent, and what they die of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecar.core.batcher import Batcher
from sidecar.core.dispatch import Upstream
from sidecar.core.isolation import Fault
from sidecar.core.request import Request
from sidecar.core.states import State
from sidecar.policies.deadline import Deadline
from sidecar.policies.fixed import FixedWindow

if TYPE_CHECKING:
    from sidecar.core.policy import BatchPolicy


DEADLINE = Deadline(Deadline.Params())
WINDOW = FixedWindow(FixedWindow.Params())


def batcher(at_once: int, policy: BatchPolicy = DEADLINE) -> Batcher:
    """A batcher with one instance."""
    made = Batcher(policy, batch_max=4, queue_max=100)
    made.upstreams.add(Upstream("a", 4, up=True, at_once=at_once))
    return made


def sizes(made: Batcher, count: int, now: float = 0.0) -> list[int]:
    """Let so many come, and return the sizes of the batches that leave."""
    for number in range(count):
        made.admit(Request(number, "k", now), now)
    return [batch.seats for batch in made.step(now).send]


@pytest.mark.parametrize("policy", [DEADLINE, WINDOW], ids=["deadline", "fixed"])
def test_requests_leave_one_by_one_while_there_is_room(policy: BatchPolicy) -> None:
    """Each is answered when it is done; a window would only keep them from their company."""
    assert [1, 1, 1] == sizes(batcher(8, policy), 3)


def test_batches_grow_when_room_is_scarce() -> None:
    """Nobody waits while there is room, and no batch is larger than it may be."""
    assert [2, 2, 2] == sizes(batcher(3), 6)
    assert [4, 4, 4] == sizes(batcher(3), 20)


def test_never_more_than_it_takes_at_once() -> None:
    """The rest waits in the sidecar, where deadlines and limits are kept."""
    made = batcher(2)

    assert 2 == len(sizes(made, 20))
    assert not made.step(1.0).send


def test_execution_times_are_each_batchs_own() -> None:
    """One that lands between another's sending and landing takes nothing from its time."""
    made = batcher(2)
    sizes(made, 1)
    first = next(iter(made._flights))
    made.admit(Request(9, "k", 1.0), 1.0)
    (second,) = made.step(1.0).send
    made.finished(second, [False], 3.0)
    made.finished(first, [False], 5.0)

    assert (2.0, 5.0) == (second.exec_s, first.exec_s)


def test_who_was_there_when_it_died_is_tried_once_more_alone() -> None:
    """Any of the batches can have been the cause, so each has one more chance, and no more."""
    made = batcher(3)
    for number in range(3):
        made.admit(Request(number, "k", 0.0), 0.0)
    first = made.step(0.0).send
    told = [made.broken(batch, Fault.DIED, 1.0) for batch in first]
    again = made.step(2.0).send
    lost = [made.broken(batch, Fault.DIED, 3.0) for batch in again]

    assert [[], [], []] == told
    assert [1, 1, 1] == [batch.seats for batch in again]
    assert [State.FAILED] * 3 == [request.state for requests in lost for request in requests]


def test_nobody_is_promised_a_time_while_there_is_room() -> None:
    """A forecast is for those who have to wait; it counts what is done at once."""
    made = batcher(2)
    upstream = next(iter(made.upstreams))
    for _ in range(10):
        upstream.exec_time.observe(1, 0.1)
    sizes(made, 1)
    early = made.outlook.finish(0.0)
    made.admit(Request(7, "k", 0.0), 0.0)
    made.step(0.0)

    assert 0.0 == early
    assert 0.2 == pytest.approx(made.outlook.finish(0.0))
