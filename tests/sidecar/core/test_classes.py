"""Order of interactive and background requests, and freedom from starvation."""

from __future__ import annotations

import math

import pytest

from sidecar.core.batch import Refusal
from sidecar.core.batcher import Batcher
from sidecar.core.dispatch import Upstream
from sidecar.core.request import Request
from sidecar.policies.deadline import Deadline


def batcher(share: float = 0.25, batch_max: int = 4, queue_max: int = 1000) -> Batcher:
    """Return a batcher with one instance."""
    made = Batcher(
        Deadline(Deadline.Params()),
        batch_max=batch_max,
        queue_max=queue_max,
        background_share=share,
    )
    made.upstreams.add(Upstream("a", batch_max, up=True))
    return made


def request(number: int, *, background: bool = False, key: str = "k") -> Request:
    """Return a request that arrives at time zero."""
    return Request(number, key, 0.0, background=background)


def leave(made: Batcher, batches: int) -> list[Request]:
    """Let ``batches`` batches leave and return one after the other, and return their requests."""
    left = []
    for number in range(batches):
        (batch,) = made.step(float(number)).send
        made.finished(batch, [False] * len(batch.requests), number + 0.5)
        left += batch.requests
    return left


def test_background_requests_fill_places_left_by_interactive_ones() -> None:
    """Interactive requests overtake older background ones, which take the remaining places."""
    made = batcher(share=0.0)
    for number in (1, 2, 3):
        made.admit(request(number, background=True), 0.0)
    for number in (4, 5):
        made.admit(request(number), 0.0)
    assert [4, 5, 1, 2, 3] == [request.id for request in leave(made, 2)]


@pytest.mark.parametrize("keys", [("k", "k"), ("k", "other")])
@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_background_gets_exactly_its_share_while_both_classes_wait(
    share: float, keys: tuple[str, str]
) -> None:
    """The background gets its share while both classes wait, with one key or with two."""
    made = batcher(share)
    for number in range(800):
        made.admit(request(number, key=keys[0]), 0.0)
        made.admit(request(1000 + number, background=True, key=keys[1]), 0.0)
    left = leave(made, 100)
    background = sum(request.background for request in left)
    assert share * len(left) == pytest.approx(background, abs=5)


def test_background_share_is_not_reduced_by_earlier_idle_capacity() -> None:
    """After a time alone, the background still gets its share at once."""
    made = batcher(share=0.25)
    for number in range(400):
        made.admit(request(number, background=True), 0.0)
    leave(made, 50)
    for number in range(1000, 1100):
        made.admit(request(number), 0.0)
    left = leave(made, 8)
    assert 8 == sum(request.background for request in left)


def test_each_class_has_its_own_queue_limit() -> None:
    """Each class has its own limit on queue length."""
    made = batcher(queue_max=5)
    refusals = [made.admit(request(number, background=True), 0.0) for number in range(7)]
    assert [None] * 5 + [Refusal.QUEUE_FULL] * 2 == refusals
    assert made.admit(request(100), 0.0) is None


def test_forecast_counts_only_requests_sent_earlier() -> None:
    """The forecast for a request counts only the requests that leave before it."""
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


def test_request_without_deadline_does_not_protect_late_ones() -> None:
    """Requests without a deadline are never given up, but do not protect late ones."""
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
