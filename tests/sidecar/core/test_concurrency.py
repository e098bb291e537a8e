"""Dispatch to instances that run several batches at once, and blame when they die."""

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
    """Return a batcher with one instance."""
    made = Batcher(policy, batch_max=4, queue_max=100)
    made.upstreams.add(Upstream("a", 4, up=True, concurrency=at_once))
    return made


def sizes(made: Batcher, count: int, now: float = 0.0) -> list[int]:
    """Admit ``count`` requests and return the sizes of the batches that leave."""
    for number in range(count):
        made.admit(Request(number, "k", now), now)
    return [batch.item_count for batch in made.step(now).send]


@pytest.mark.parametrize("policy", [DEADLINE, WINDOW], ids=["deadline", "fixed"])
def test_requests_are_sent_alone_while_slots_are_free(policy: BatchPolicy) -> None:
    """While the instance has free slots, each request leaves alone at once, whatever the policy."""
    assert [1, 1, 1] == sizes(batcher(8, policy), 3)


def test_batches_grow_once_slots_run_out() -> None:
    """Requests share batches once the slots run out, and no batch exceeds its maximum size."""
    assert [2, 2, 2] == sizes(batcher(3), 6)
    assert [4, 4, 4] == sizes(batcher(3), 20)


def test_batches_in_flight_never_exceed_instance_concurrency() -> None:
    """An instance gets as many batches as it runs at once, and the rest waits in the sidecar."""
    made = batcher(2)

    assert 2 == len(sizes(made, 20))
    assert not made.step(1.0).send


def test_concurrent_batches_keep_their_own_execution_times() -> None:
    """Batches that run side by side do not shorten each other's measured execution times."""
    made = batcher(2)
    sizes(made, 1)
    first = next(iter(made._in_flight))
    made.admit(Request(9, "k", 1.0), 1.0)
    (second,) = made.step(1.0).send
    made.finished(second, [False], 3.0)
    made.finished(first, [False], 5.0)

    assert (2.0, 5.0) == (second.exec_s, first.exec_s)


def test_requests_in_flight_at_instance_death_are_retried_alone() -> None:
    """After a death each request in flight is retried alone, and only the cause fails."""
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


def test_suspect_request_waits_for_idle_instance() -> None:
    """A suspect request waits for an idle instance, and the others get no more work until then."""
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


def test_forecast_counts_concurrent_batches_and_only_waiting_requests() -> None:
    """The forecast covers only requests that have to wait, and counts batches that run at once."""
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


def test_requests_are_admitted_while_suspect_has_the_instance_for_itself() -> None:
    """The forecast knows that an instance with a suspect takes no other batch beside it."""
    made = batcher(3)
    (upstream,) = made.upstreams
    for _ in range(10):
        upstream.exec_time.observe(1, 0.1)
    made.admit(Request(0, "k", 0.0), 0.0)
    (batch,) = made.step(0.0).send
    made.broken(batch, Fault.DIED, 1.0)
    (alone,) = made.step(1.0).send
    assert (batch.requests, True) == (alone.requests, upstream.exclusive)

    assert made.admit(Request(1, "k", 1.0, deadline=2.0), 1.0) is None
    assert 1.1 == pytest.approx(made._in_flight.free_at(upstream, 1.0))
    assert not made.step(1.0).send
