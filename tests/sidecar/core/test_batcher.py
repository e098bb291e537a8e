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
    """Return a batcher with a window of 10 ms and one instance."""
    policy = FixedWindow(FixedWindow.Params(size=size, wait_s=WINDOW_S))
    batcher = Batcher(policy, batch_max=32, queue_max=queue_max)
    batcher.upstreams.add(Upstream("a", 32, up=up))
    return batcher


def eager() -> Batcher:
    """Return a batcher that fills a batch whenever the instance is free."""
    batcher = Batcher(Deadline(Deadline.Params()), batch_max=32, queue_max=100)
    batcher.upstreams.add(Upstream("a", 32, up=True))
    return batcher


def request(number: int, at: float = 0.0, *, key: str = "k", deadline: float = math.inf) -> Request:
    """Return a request that arrived at ``at``."""
    return Request(number, key, at, deadline=deadline)


def test_a_full_batch_leaves_at_once() -> None:
    """A batch that reaches its size leaves before the window ends."""
    batcher = windowed(size=2)
    for number in (1, 2):
        batcher.admit(request(number), 0.0)
    (batch,) = batcher.step(0.0).send
    assert [1, 2] == [r.id for r in batch.requests]
    assert CloseReason.FULL is batch.close_reason


def test_a_partial_batch_waits_for_its_window() -> None:
    """A partial batch waits for the window of its oldest request, and ``wake_at`` gives its end."""
    batcher = windowed()
    batcher.admit(request(1), 0.0)
    assert [] == batcher.step(0.0).send
    assert WINDOW_S == batcher.wake_at(0.0)
    (batch,) = batcher.step(WINDOW_S).send
    assert CloseReason.DEPARTURE is batch.close_reason


def test_batch_keeps_growing_while_instance_is_busy() -> None:
    """While the instance is busy the batch grows past its departure time, until it is pulled."""
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


def test_requests_with_different_keys_never_share_batch() -> None:
    """Requests with different keys leave in separate batches, oldest request first."""
    batcher = eager()
    batcher.upstreams.add(Upstream("b", 32, up=True))
    for number, key in enumerate(("x", "y", "x", "y"), 1):
        batcher.admit(request(number, key=key), 0.0)
    batches = batcher.step(0.0).send
    assert [[1, 3], [2, 4]] == [[r.id for r in batch.requests] for batch in batches]


def test_ready_batch_does_not_wait_behind_older_unready_key() -> None:
    """A full batch of a younger key leaves while an older key still waits for its window."""
    batcher = windowed(size=2)
    for number, key in enumerate(("x", "y", "y"), 1):
        batcher.admit(request(number, key=key), 0.0)
    (batch,) = batcher.step(0.0).send
    assert [2, 3] == [r.id for r in batch.requests]


def test_nothing_is_sent_without_instance() -> None:
    """Requests wait while no instance is up."""
    batcher = windowed(size=1, up=False)
    batcher.admit(request(1), 0.0)
    assert [] == batcher.step(1.0).send
    batcher.upstreams.add(Upstream("a", 32, up=True))
    assert 1 == len(batcher.step(1.0).send)


def test_the_queue_is_bounded() -> None:
    """A request beyond ``queue_max`` is refused with the reason and never admitted later."""
    batcher = windowed(queue_max=1, up=False)
    extra = request(2)
    assert batcher.admit(request(1), 0.0) is None
    assert Refusal.QUEUE_FULL is batcher.admit(extra, 0.0)
    assert State.REFUSED is extra.state
    assert 1 == batcher.queued


def test_an_expired_request_is_never_sent() -> None:
    """A request whose deadline passes in the queue is reported as expired, and the others leave."""
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


def test_request_past_its_deadline_is_refused_on_arrival() -> None:
    """A request whose deadline has passed is refused on arrival."""
    assert Refusal.EXPIRED is eager().admit(request(1, deadline=0.0), 0.0)


def test_cancelling_is_idempotent_and_frees_queue_place() -> None:
    """A cancelled request frees its place at once, and cancelling it twice changes nothing."""
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


def test_request_cancelled_in_flight_gets_no_response() -> None:
    """The batch of a request cancelled in flight continues, and returns only the others."""
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
    """When the function fails on one item, the other items of the batch are done."""
    batcher = eager()
    requests = [request(number) for number in (1, 2, 3)]
    for each in requests:
        batcher.admit(each, 0.0)
    (batch,) = batcher.step(0.0).send
    batcher.finished(batch, [False, True, False], 0.1)
    assert [State.DONE, State.FAILED, State.DONE] == [r.state for r in requests]


def test_failed_batches_do_not_update_latency_model() -> None:
    """Broken and failed batches leave the latency model unchanged."""
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


def test_draining_sends_partial_batches_immediately() -> None:
    """While draining, a partial batch leaves without waiting for its window."""
    batcher = windowed()
    batcher.admit(request(1), 0.0)
    batcher.drain()
    (batch,) = batcher.step(0.0).send
    assert CloseReason.DRAIN is batch.close_reason


def test_give_up_returns_all_queued_requests() -> None:
    """Giving up returns all queued requests."""
    batcher = windowed(up=False)
    waiting = [request(1), request(2, key="other")]
    for each in waiting:
        batcher.admit(each, 0.0)
    assert (waiting, []) == batcher.give_up()
    assert batcher.idle


def test_requests_are_split_by_instance_weights() -> None:
    """Of two instances with weights 3 and 1, the first gets three quarters of the requests."""
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


def test_first_instance_is_filled_before_second_gets_requests() -> None:
    """Ten requests on two idle instances make batches of 8 and 2, not 5 and 5."""
    batcher = Batcher(Deadline(Deadline.Params()), batch_max=8, queue_max=100)
    for name in ("a", "b"):
        batcher.upstreams.add(Upstream(name, 8, up=True))
    for number in range(10):
        batcher.admit(request(number), 0.0)
    assert [8, 2] == [len(batch.requests) for batch in batcher.step(0.0).send]


def test_batch_size_respects_instance_settings_and_policy_limits() -> None:
    """The batch size is the least of the limits of the instance, the settings and the policy."""
    batcher = Batcher(FixedWindow(FixedWindow.Params(size=100)), batch_max=32, queue_max=100)
    batcher.upstreams.add(Upstream("a", 3, up=True))
    for number in range(10):
        batcher.admit(request(number), 0.0)
    assert [3] == [len(batch.requests) for batch in batcher.step(0.0).send]


def test_batch_size_is_limited_in_bytes() -> None:
    """Large bodies leave in several batches, and a body above the limit leaves alone."""
    batcher = Batcher(Deadline(Deadline.Params()), batch_max=32, queue_max=100, batch_bytes_max=100)
    for name in "abcd":
        batcher.upstreams.add(Upstream(name, 32, up=True))
    for number, size_bytes in enumerate((60, 40, 1, 500, 99), 1):
        batcher.admit(Request(number, "k", 0.0, size_bytes=size_bytes), 0.0)
    sent = [[r.id for r in batch.requests] for batch in batcher.step(0.0).send]
    assert [[1, 2], [3], [4], [5]] == sent


@pytest.mark.parametrize("wanted", [-5, 0, 10**9])
def test_batch_size_from_policy_is_clamped_to_limits(wanted: int) -> None:
    """Batches hold between one and ``batch_max`` requests, whatever size the policy asks for."""

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


def test_queued_batch_is_expected_to_start_when_previous_returns() -> None:
    """A queued batch is expected to start when the one before it returns, however late that is."""
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


def test_late_requests_yield_batch_places_to_requests_in_time() -> None:
    """Requests that would be late leave the batch to waiting requests that can be in time."""
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
def test_late_requests_are_kept_if_dropping_them_helps_no_other(
    deadlines: tuple[float, ...],
) -> None:
    """No late request is given up if all fit in the batch or those behind would be late too."""
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
