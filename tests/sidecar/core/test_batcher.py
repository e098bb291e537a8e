"""The batcher, event by event, with time passed in."""

from __future__ import annotations

import math

import pytest

from sidecar.core.batch import Batch, CloseReason, Fault, Refusal
from sidecar.core.batcher import Batcher
from sidecar.core.dispatch import Route, Upstream
from sidecar.core.policy import Decision
from sidecar.core.request import Request, State
from sidecar.policies.deadline import Deadline
from sidecar.policies.fixed import FixedWindow
from sidecar.policies.none import NoBatching

WINDOW_S = 0.010


def windowed(size: int = 4, *, up: bool = True, queue_max: int = 100) -> Batcher:
    """A batcher with a window of 10 ms and one instance."""
    policy = FixedWindow(FixedWindow.Params(size=size, wait_s=WINDOW_S))
    batcher = Batcher(policy, batch_max=32, queue_max=queue_max)
    batcher.upstreams.add(Upstream("a", 32, up=up))
    return batcher


def eager() -> Batcher:
    """A batcher that pulls whenever the instance is free."""
    batcher = Batcher(Deadline(Deadline.Params()), batch_max=32, queue_max=100)
    batcher.upstreams.add(Upstream("a", 32, up=True))
    return batcher


def request(number: int, at: float = 0.0, *, key: str = "k", deadline: float = math.inf) -> Request:
    """A request that arrived at ``at``."""
    return Request(number, key, at, deadline=deadline)


def test_a_full_batch_leaves_at_once() -> None:
    """Size is reached before the window ends: no waiting."""
    batcher = windowed(size=2)
    for number in (1, 2):
        batcher.admit(request(number), 0.0)
    (batch,) = batcher.step(0.0).send
    assert [1, 2] == [r.id for r in batch.requests]
    assert CloseReason.FULL is batch.close_reason


def test_a_partial_batch_waits_for_its_window() -> None:
    """One request waits until the window of the oldest has passed, and the core says until when."""
    batcher = windowed()
    batcher.admit(request(1), 0.0)
    assert [] == batcher.step(0.0).send
    assert WINDOW_S == batcher.wake_at(0.0)
    (batch,) = batcher.step(WINDOW_S).send
    assert CloseReason.DEPARTURE is batch.close_reason


def test_a_busy_instance_never_causes_a_small_batch() -> None:
    """While the instance works, departures pass and the batch grows; it leaves when pulled."""
    batcher = eager()
    batcher.admit(request(1), 0.0)
    (first,) = batcher.step(0.0).send
    for number in range(2, 10):
        batcher.admit(request(number, 0.001 * number), 0.001 * number)
        assert [] == batcher.step(0.001 * number).send
    assert math.inf == batcher.wake_at(0.02)
    batcher.finished(first, [False], 0.05)
    (second,) = batcher.step(0.05).send
    assert list(range(2, 10)) == [r.id for r in second.requests]


def test_unlike_requests_never_share_a_batch() -> None:
    """Groups of different compat keys leave separately, the one with the oldest request first."""
    batcher = eager()
    batcher.upstreams.add(Upstream("b", 32, up=True))
    for number, key in enumerate(("x", "y", "x", "y"), 1):
        batcher.admit(request(number, key=key), 0.0)
    batches = batcher.step(0.0).send
    assert [[1, 3], [2, 4]] == [[r.id for r in batch.requests] for batch in batches]


def test_a_ready_group_does_not_wait_behind_one_that_is_not() -> None:
    """A full batch of a younger key leaves although an older key still waits for its window."""
    batcher = windowed(size=2)
    for number, key in enumerate(("x", "y", "y"), 1):
        batcher.admit(request(number, key=key), 0.0)
    (batch,) = batcher.step(0.0).send
    assert [2, 3] == [r.id for r in batch.requests]


def test_without_an_instance_nothing_leaves() -> None:
    """An instance that is down takes nothing; requests wait for one."""
    batcher = windowed(size=1, up=False)
    batcher.admit(request(1), 0.0)
    assert [] == batcher.step(1.0).send
    batcher.upstreams.add(Upstream("a", 32, up=True))
    assert 1 == len(batcher.step(1.0).send)


def test_the_queue_is_bounded() -> None:
    """More than queue_max waiting: refused, with the reason, and never admitted later."""
    batcher = windowed(queue_max=1, up=False)
    extra = request(2)
    assert batcher.admit(request(1), 0.0) is None
    assert Refusal.QUEUE_FULL is batcher.admit(extra, 0.0)
    assert State.REFUSED is extra.state
    assert 1 == batcher.queued


def test_an_expired_request_is_never_sent() -> None:
    """Its deadline passes in the queue: it is reported expired, the others leave."""
    batcher = eager()
    batcher.admit(request(1, deadline=0.5), 0.0)
    (running,) = batcher.step(0.0).send
    late, fine = request(2, deadline=0.1), request(3, deadline=9.0)
    batcher.admit(late, 0.0)
    batcher.admit(fine, 0.0)
    assert 0.1 == batcher.wake_at(0.0)
    assert [late] == batcher.step(0.1).expired
    assert State.EXPIRED is late.state
    batcher.finished(running, [False], 0.2)
    (batch,) = batcher.step(0.2).send
    assert [fine] == batch.requests


def test_a_request_whose_deadline_has_passed_is_not_admitted() -> None:
    """It is refused at the door, so that it costs nothing."""
    assert Refusal.EXPIRED is eager().admit(request(1, deadline=0.0), 0.0)


def test_cancelling_is_idempotent_and_leaves_no_gap() -> None:
    """A caller that leaves makes room at once; leaving twice changes nothing."""
    batcher = windowed(size=2)
    gone, stays, late = request(1), request(2), request(3)
    batcher.admit(gone, 0.0)
    batcher.cancel(gone)
    batcher.cancel(gone)
    batcher.admit(stays, 0.0)
    assert [] == batcher.step(0.0).send
    assert 1 == batcher.queued
    batcher.admit(late, 0.0)
    (batch,) = batcher.step(0.0).send
    assert [stays, late] == batch.requests


def test_a_request_cancelled_in_flight_gets_no_answer() -> None:
    """The batch continues; only those that still wait are returned."""
    batcher = eager()
    gone, stays = request(1), request(2)
    batcher.admit(gone, 0.0)
    batcher.admit(stays, 0.0)
    (batch,) = batcher.step(0.0).send
    batcher.cancel(gone)
    assert [stays] == batcher.finished(batch, [False, False], 0.1)
    assert (State.CANCELLED, State.DONE) == (gone.state, stays.state)
    assert batcher.idle


def test_one_bad_item_fails_alone() -> None:
    """The function failed on one item: its neighbours are done."""
    batcher = eager()
    requests = [request(number) for number in (1, 2, 3)]
    for each in requests:
        batcher.admit(each, 0.0)
    (batch,) = batcher.step(0.0).send
    batcher.finished(batch, [False, True, False], 0.1)
    assert [State.DONE, State.FAILED, State.DONE] == [r.state for r in requests]


def test_failures_say_nothing_about_execution_time() -> None:
    """Broken and failed batches leave the latency model as it was."""
    batcher = eager()
    (upstream,) = batcher.upstreams
    for number, outcome in enumerate(("broken", "failed"), 1):
        batcher.admit(request(number), 0.0)
        (batch,) = batcher.step(0.0).send
        if outcome == "broken":
            batcher.broken(batch, Fault.ANSWERED, 0.1)
        else:
            batcher.finished(batch, [True], 5.0)
    assert not upstream.exec_time.known


def test_draining_lets_partial_batches_leave_at_once() -> None:
    """None waits for a fuller batch that will not come."""
    batcher = windowed()
    batcher.admit(request(1), 0.0)
    batcher.drain()
    (batch,) = batcher.step(0.0).send
    assert CloseReason.DRAIN is batch.close_reason


def test_giving_up_fails_what_waits() -> None:
    """The function cannot be started: all requests in the queue are answered."""
    batcher = windowed(up=False)
    waiting = [request(1), request(2, key="other")]
    for each in waiting:
        batcher.admit(each, 0.0)
    assert (waiting, []) == batcher.give_up()
    assert batcher.idle


def test_instances_share_in_proportion_to_their_weights() -> None:
    """Two instances of weights 3 and 1, always free: three quarters of the requests to one."""
    batcher = Batcher(NoBatching(NoBatching.Params()), batch_max=32, queue_max=100)
    upstreams = [Upstream(name, 32, name, up=True) for name in ("big", "small")]
    route = Route({"big": 0.75, "small": 0.25})
    batcher.replan(NoBatching(NoBatching.Params()), {"*": route}, upstreams)
    taken = {"big": 0, "small": 0}
    for number in range(400):
        batcher.admit(request(number), 0.0)
        (batch,) = batcher.step(0.0).send
        taken[batch.upstream.name] += 1
        batcher.finished(batch, [False], 0.0)
    assert {"big": 300, "small": 100} == taken


def test_one_instance_is_filled_before_the_next_is_started() -> None:
    """Ten requests, two idle instances, batches of eight: 8 and 2, not 5 and 5."""
    batcher = Batcher(Deadline(Deadline.Params()), batch_max=8, queue_max=100)
    for name in ("a", "b"):
        batcher.upstreams.add(Upstream(name, 8, up=True))
    for number in range(10):
        batcher.admit(request(number), 0.0)
    assert [8, 2] == [len(batch.requests) for batch in batcher.step(0.0).send]


def test_an_instance_takes_no_more_than_it_can() -> None:
    """The batch is bounded by the instance, the settings and the policy, whichever is least."""
    batcher = Batcher(FixedWindow(FixedWindow.Params(size=100)), batch_max=32, queue_max=100)
    batcher.upstreams.add(Upstream("a", 3, up=True))
    for number in range(10):
        batcher.admit(request(number), 0.0)
    assert [3] == [len(batch.requests) for batch in batcher.step(0.0).send]


def test_a_batch_is_bounded_in_bytes_too() -> None:
    """Large bodies leave in several batches; one that is too large by itself leaves alone."""
    batcher = Batcher(Deadline(Deadline.Params()), batch_max=32, queue_max=100, batch_bytes_max=100)
    for name in "abcd":
        batcher.upstreams.add(Upstream(name, 32, up=True))
    for number, size_bytes in enumerate((60, 40, 1, 500, 99), 1):
        batcher.admit(Request(number, "k", 0.0, size_bytes=size_bytes), 0.0)
    sent = [[r.id for r in batch.requests] for batch in batcher.step(0.0).send]
    assert [[1, 2], [3], [4], [5]] == sent


@pytest.mark.parametrize("wanted", [-5, 0, 10**9])
def test_a_policy_that_asks_for_nonsense_is_kept_within_limits(wanted: int) -> None:
    """Whatever size a policy names, batches hold one to batch_max requests."""

    class Odd(NoBatching):
        def decide(self, waiting: object) -> Decision:
            del waiting
            return Decision(wanted, late=wanted)

    batcher = Batcher(Odd(NoBatching.Params()), batch_max=4, queue_max=100)
    batcher.upstreams.add(Upstream("a", 32, up=True))
    for number in range(10):
        batcher.admit(request(number), 0.0)
    (batch,) = batcher.step(0.0).send
    assert 1 <= len(batch.requests) <= 4


def test_a_batch_behind_another_begins_when_that_has_come_back() -> None:
    """However late that is: the instance is not taken for free when the first was overdue."""
    batcher = Batcher(Deadline(Deadline.Params()), batch_max=4, queue_max=100)
    upstream = Upstream("a", 4, up=True)
    batcher.upstreams.add(upstream)
    for size in (1, 4) * 10:
        upstream.exec_time.observe(size, 0.01)
    batches: list[Batch] = []
    for number in range(3):
        if number == 2:
            batcher.finished(batches[0], [False] * 4, 0.05)  # 40 ms later than expected
        now = 0.05 * (number == 2)
        for each in range(4):
            batcher.admit(request(4 * number + each, now), now)
        batches += batcher.step(now).send
    assert [0.0, 0.01, 0.06] == pytest.approx([batch.starts for batch in batches], abs=0.005)


def test_what_cannot_be_in_time_makes_room_for_what_can() -> None:
    """A policy that sends the first four; two of them would be late, and two others wait."""
    batcher = Batcher(FixedWindow(FixedWindow.Params(size=4, wait_s=0.0)), batch_max=4, queue_max=9)
    upstream = Upstream("a", 4, up=True)
    batcher.upstreams.add(upstream)
    for size in (1, 4) * 10:
        upstream.exec_time.observe(size, 0.01)
    deadlines = (0.005, 0.1, 0.008, 0.1, 0.1, 0.1)
    for number, deadline in enumerate(deadlines):
        batcher.admit(request(number, deadline=deadline), 0.0)
    actions = batcher.step(0.0)
    assert [0, 2] == [each.id for each in actions.expired]
    assert [1, 3, 4, 5] == [each.id for each in actions.send[0].requests]


@pytest.mark.parametrize("deadlines", [(0.005, 0.008, 0.1, 0.1), (0.005,) * 6])
def test_none_is_given_up_for_nothing(deadlines: tuple[float, ...]) -> None:
    """Where all fit in the batch, or those behind would be late as well."""
    batcher = Batcher(FixedWindow(FixedWindow.Params(size=4, wait_s=0.0)), batch_max=4, queue_max=9)
    upstream = Upstream("a", 4, up=True)
    batcher.upstreams.add(upstream)
    for size in (1, 4) * 10:
        upstream.exec_time.observe(size, 0.01)
    for number, deadline in enumerate(deadlines):
        batcher.admit(request(number, deadline=deadline), 0.0)
    actions = batcher.step(0.0)
    assert [] == actions.expired
    assert [0, 1, 2, 3] == [each.id for each in actions.send[0].requests]
