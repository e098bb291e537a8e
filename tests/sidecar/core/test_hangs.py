"""Batches that time out and instances that stop responding."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from sidecar.core.batch import Fault
from sidecar.core.batch_division import QUARANTINE_S
from sidecar.core.batcher import Batcher
from sidecar.core.dispatch import Route, Upstream
from sidecar.core.request import Request, State
from sidecar.policies.deadline import Deadline

if TYPE_CHECKING:
    from sidecar.core.batch import Batch

LIMIT_S = 30.0  # exec_timeout


def fleet(*upstreams: Upstream, batch_max: int = 8) -> Batcher:
    """Return a batcher that recognizes requests by their payload."""
    policy = Deadline(Deadline.Params())
    made = Batcher(policy, batch_max=batch_max, queue_max=99, fingerprint=lambda r: r.payload)
    for upstream in upstreams:
        made.upstreams.add(upstream)
    return made


def instance(name: str = "a", concurrency: int = 1) -> Upstream:
    """Return an instance that is ready."""
    return Upstream(name, 8, up=True, concurrency=concurrency)


def request(number: int, word: str = "", deadline: float = math.inf) -> Request:
    """Return a request that is recognized by ``word``."""
    return Request(number, "k", 0.0, payload=word or str(number), deadline=deadline)


def sent(batcher: Batcher, *requests: Request, now: float = 0.0) -> Batch:
    """Admit ``requests`` and send them as one batch."""
    for each in requests:
        assert batcher.admit(each, now) is None
    (batch,) = batcher.step(now).send
    assert list(requests) == batch.requests
    return batch


def restarted(upstream: Upstream) -> None:
    """Replace the process of ``upstream`` with a new one that is ready."""
    upstream.up = False
    upstream.came_up()


def test_hung_instance_gets_no_requests_until_restarted() -> None:
    """Requests wait until a hung instance is restarted; the new process is not on probation."""
    a = instance()
    batcher = fleet(a)
    batcher.broken(sent(batcher, request(1)), Fault.HUNG, LIMIT_S)
    waits = request(2)
    batcher.admit(waits, LIMIT_S)
    assert [] == batcher.step(LIMIT_S).send
    restarted(a)
    assert [[waits]] == [batch.requests for batch in batcher.step(LIMIT_S).send]


def test_hung_instance_without_restart_is_retried_with_doubling_pauses() -> None:
    """An instance that is never restarted is tried again after pauses that double."""
    a = instance()
    batcher, now, pauses = fleet(a), 0.0, []
    for number in range(3):
        batch = sent(batcher, request(number), now=now)
        batcher.broken(batch, Fault.HUNG, now)
        batcher.admit(late := request(10 + number), now)
        pauses.append(batcher.wake_at(now) - now)
        batcher.cancel(late)
        now += pauses[-1]
    assert [5.0, 10.0, 20.0] == pauses


def test_requests_of_hung_batch_are_retried_alone() -> None:
    """The requests of a hung batch are retried alone, except those whose deadlines have passed."""
    a = instance()
    batcher = fleet(a)
    late, *rest = [request(1, deadline=LIMIT_S - 1), request(2), request(3)]
    assert [] == batcher.broken(sent(batcher, late, *rest), Fault.HUNG, LIMIT_S)
    restarted(a)
    done = []
    actions = batcher.step(LIMIT_S)
    assert [late] == actions.expired
    assert State.EXPIRED is late.state
    while actions.send:
        (batch,) = actions.send
        done += batcher.finished(batch, [False], LIMIT_S + 1)
        actions = batcher.step(LIMIT_S + 1)
    assert (rest, 3) == (done, batcher._batches)


def test_request_that_hangs_alone_fails_and_is_quarantined() -> None:
    """A request that hangs alone fails at once, and its like are sent alone for a while."""
    a = instance()
    batcher = fleet(a)
    bad = request(1, "bad")
    assert [bad] == batcher.broken(sent(batcher, bad), Fault.HUNG, LIMIT_S)
    restarted(a)
    again, good = request(2, "bad"), request(3, "good")
    for each in (again, good):
        batcher.admit(each, LIMIT_S + 1)
    (first,) = batcher.step(LIMIT_S + 1).send
    assert [again] == first.requests


def test_hanging_function_stops_division_after_two_single_hangs() -> None:
    """After two requests hang alone, the rest fails and the next hung batch is not divided."""
    a = instance()
    batcher, now = fleet(a), LIMIT_S
    members = [request(number) for number in range(8)]
    assert [] == batcher.broken(sent(batcher, *members), Fault.HUNG, now)
    failed: list[Request] = []
    for _ in range(2):
        assert [] == failed[1:]
        restarted(a)
        (alone,) = batcher.step(now).send
        now += LIMIT_S
        failed += batcher.broken(alone, Fault.HUNG, now)
    assert members == failed
    assert batcher.idle
    restarted(a)
    next_ones = [request(20), request(21)]
    assert next_ones == batcher.broken(sent(batcher, *next_ones, now=now), Fault.HUNG, now + 9)
    restarted(a)
    much_later = now + 9 + QUARANTINE_S
    batch = sent(batcher, request(22), request(23), now=much_later)
    assert [] == batcher.broken(batch, Fault.HUNG, much_later)


def test_batch_queued_behind_hung_one_is_sent_whole_elsewhere() -> None:
    """A batch queued behind a hung one goes whole to another instance, as it never began."""
    for end in (Fault.HUNG, Fault.DIED):
        a, b = instance("a"), instance("b")
        for upstream in (a, b):
            for size in (1, 2) * 20:
                upstream.exec_time.observe(size, 0.001)
        b.up = False
        batcher = fleet(a, b, batch_max=2)
        a.batch_max = b.batch_max = 2
        requests = [request(number) for number in range(4)]
        for each in requests:
            batcher.admit(each, 0.0)
        ahead, behind = batcher.step(0.0).send
        assert [] == batcher.broken(ahead, Fault.HUNG, LIMIT_S)
        assert [] == batcher.broken(behind, end, LIMIT_S)
        b.up = True
        sizes = []
        while sent := batcher.step(LIMIT_S).send:
            assert "b" == sent[0].upstream.name
            sizes.append(len(sent[0].requests))
            batcher.finished(sent[0], [False] * sizes[-1], LIMIT_S)
        assert [1, 1, 2] == sizes


def test_batches_beside_hung_one_are_retried_whole_after_kill() -> None:
    """When an instance is killed for one hung batch, its other batches are sent again whole."""
    a = instance(concurrency=2)
    batcher = fleet(a)
    hung = sent(batcher, request(1))
    neighbour = sent(batcher, request(2), now=20.0)
    batcher.broken(hung, Fault.HUNG, LIMIT_S)
    for _ in range(2):  # a death of its own would be borne once only
        assert [] == batcher.broken(neighbour, Fault.DIED, LIMIT_S + 5)
        restarted(a)
        (neighbour,) = batcher.step(LIMIT_S + 5).send
        neighbour.blameless = True


def test_requests_on_silent_instance_expire_at_their_deadlines() -> None:
    """Requests on a silent instance expire in time; if it recovers, it answers the others."""
    a = instance()
    batcher = fleet(a)
    soon, later, never = request(1, deadline=1.0), request(2, deadline=9.0), request(3)
    batch = sent(batcher, soon, later, never)
    assert math.inf == batcher.wake_at(0.5)
    assert [] == batcher.step(2.0).expired  # busy, for all that is known: its answer is delivered
    batcher.mark_silent(a, silent=True)
    assert [soon] == batcher.step(2.0).expired
    assert 9.0 == batcher.wake_at(2.0)
    batcher.mark_silent(a, silent=False)
    assert math.inf == batcher.wake_at(3.0)
    assert [] == batcher.step(10.0).expired
    assert [later, never] == batcher.finished(batch, [False] * 3, 10.0)


def test_instance_is_replaceable_if_routes_allow_others() -> None:
    """An instance is replaceable if available others may take all its requests by their routes."""
    a, b = instance("a"), instance("b")
    a.instance_class, b.instance_class = "one", "two"
    batcher = fleet(a, b)
    waits = request(1)
    batch = sent(batcher, waits)
    other = b if batch.upstream is a else a
    assert batcher.is_replaceable(batch.upstream, 0.0)
    other.up = False
    assert not batcher.is_replaceable(batch.upstream, 0.0)
    other.up = True
    alone = {"*": Route({batch.upstream.instance_class: 1.0})}
    batcher.replan(Deadline(Deadline.Params()), alone, [a, b])
    assert not batcher.is_replaceable(batch.upstream, 0.0)
    batcher.cancel(waits)
    assert batcher.is_replaceable(batch.upstream, 0.0)
