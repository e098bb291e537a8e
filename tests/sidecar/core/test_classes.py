"""Interactive and background requests: which leave first, and that none starves."""

from __future__ import annotations

import math

import pytest

from sidecar.core.batch import Refusal
from sidecar.core.batcher import Batcher
from sidecar.core.dispatch import Upstream
from sidecar.core.request import Request
from sidecar.policies.deadline import Deadline


def batcher(share: float = 0.25, batch_max: int = 4, queue_max: int = 1000) -> Batcher:
    """A batcher with one instance that is busy with a first request."""
    made = Batcher(
        Deadline(Deadline.Params()),
        batch_max=batch_max,
        queue_max=queue_max,
        background_share=share,
    )
    made.upstreams.add(Upstream("a", batch_max, up=True))
    return made


def request(number: int, *, background: bool = False, key: str = "k") -> Request:
    """One request at time zero."""
    return Request(number, key, 0.0, background=background)


def leave(made: Batcher, batches: int) -> list[Request]:
    """Let so many batches leave and come back, one after the other; the requests in them."""
    left = []
    for number in range(batches):
        (batch,) = made.step(float(number)).send
        made.finished(batch, [False] * len(batch.requests), number + 0.5)
        left += batch.requests
    return left


def test_interactive_requests_leave_first_and_the_background_fills_the_rest() -> None:
    """Two interactive requests overtake three older background ones; two places are left."""
    made = batcher(share=0.0)
    for number in (1, 2, 3):
        made.admit(request(number, background=True), 0.0)
    for number in (4, 5):
        made.admit(request(number), 0.0)
    assert [4, 5, 1, 2, 3] == [request.id for request in leave(made, 2)]


@pytest.mark.parametrize("keys", [("k", "k"), ("k", "other")])
@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_the_background_gets_its_share_and_no_more(share: float, keys: tuple[str, str]) -> None:
    """Both classes wait all the time, with one compat key or two: the shares hold."""
    made = batcher(share)
    for number in range(800):
        made.admit(request(number, key=keys[0]), 0.0)
        made.admit(request(1000 + number, background=True, key=keys[1]), 0.0)
    left = leave(made, 100)
    background = sum(request.background for request in left)
    assert share * len(left) == pytest.approx(background, abs=5)


def test_what_the_background_had_alone_is_not_held_against_it() -> None:
    """After a time alone it gets its share at once, not after the others have caught up."""
    made = batcher(share=0.25)
    for number in range(400):
        made.admit(request(number, background=True), 0.0)
    leave(made, 50)
    for number in range(1000, 1100):
        made.admit(request(number), 0.0)
    left = leave(made, 8)
    assert 8 == sum(request.background for request in left)


def test_a_flood_of_background_requests_does_not_fill_the_queue_of_the_others() -> None:
    """Each class has a queue of its own length."""
    made = batcher(queue_max=5)
    refusals = [made.admit(request(number, background=True), 0.0) for number in range(7)]
    assert [None] * 5 + [Refusal.QUEUE_FULL] * 2 == refusals
    assert made.admit(request(100), 0.0) is None


def test_a_background_flood_makes_no_interactive_request_late_in_the_forecast() -> None:
    """Only what leaves before a request counts for whether it will be late."""
    made = batcher(share=0.25, batch_max=4)
    (upstream,) = made.upstreams
    for size in (1, 2, 3, 4) * 3:
        upstream.exec_time.observe(size, 0.1)
    made.admit(request(0), 0.0)
    made.step(0.0)
    alone = made.finish_predictor.finish_at(0.0)
    for number in range(400):
        made.admit(request(1000 + number, background=True), 0.0)
    assert alone == pytest.approx(made.finish_predictor.finish_at(0.0))
    for number in range(12):
        made.admit(request(number + 1), 0.0)
    assert alone + 4 * 0.1 == pytest.approx(made.finish_predictor.finish_at(0.0))


def test_a_late_background_request_does_not_shield_the_others() -> None:
    """Requests without a deadline are never given up, and never keep others from it."""
    made = batcher(share=0.5, batch_max=2)
    (upstream,) = made.upstreams
    for size in (1, 2) * 6:
        upstream.exec_time.observe(size, 0.1)
    made.admit(request(1, background=True), 0.0)
    for number, deadline in enumerate((0.05, 0.05, 0.05, 9.0, 9.0), 2):
        made.admit(Request(number, "k", 0.0, deadline=deadline), 0.0)
    actions = made.step(0.0)
    assert {2, 3, 4} == {request.id for request in actions.expired}
    assert all(request.deadline in (9.0, math.inf) for request in actions.send[0].requests)
