"""Predicted answers, step by step: one fast instance, which is busy with one request."""

from __future__ import annotations

import pytest

from sidecar.core.admission.finish_predictor import FinishPredictor
from sidecar.core.admission.shedding import Shedding
from sidecar.core.batch import Batch, CloseReason
from sidecar.core.dispatch import Upstream, Upstreams
from sidecar.core.in_flight import InFlight
from sidecar.core.queue import Queue
from sidecar.core.request import Request, State, advance

EXEC_S = 0.1  # of a batch of any size


class Scene:
    """A predictor and what it reads."""

    def __init__(self, mode: str = "on") -> None:
        self.queue, self.upstreams, self.in_flight = Queue(), Upstreams(), InFlight()
        self.shedding = Shedding(mode, cap=1.0)
        self.finish_predictor = FinishPredictor(
            self.queue, self.upstreams, self.in_flight, self.shedding
        )
        self.upstream = Upstream("a", 2, up=True)
        self.upstreams.add(self.upstream)

    def learn_times(self) -> None:
        """Know how long batches take."""
        for size in (1, 2) * 10:
            self.upstream.exec_time.observe(size, EXEC_S)

    def send(self) -> None:
        """A batch of one leaves at time zero."""
        batch = Batch(
            1, [Request(1, "k", 0.0)], 1, self.upstream, CloseReason.IDLE, 0.0, 0.0, EXEC_S
        )
        self.in_flight.add(batch)
        self.finish_predictor.invalidate()

    def wait(self, count: int) -> None:
        """So many wait."""
        for number in range(count):
            request = Request(10 + number, "k", 0.0)
            advance(request, State.QUEUED)
            self.queue.push(request)


def test_nothing_is_foretold_while_times_are_unknown_or_an_instance_is_idle() -> None:
    """An answer now, and nothing to clear."""
    scene = Scene()
    scene.send()
    assert (7.0, 0.0) == (
        scene.finish_predictor.finish_at(7.0),
        scene.finish_predictor.backlog_s(7.0),
    )
    scene = Scene()
    scene.learn_times()
    assert (7.0, 0.0) == (
        scene.finish_predictor.finish_at(7.0),
        scene.finish_predictor.backlog_s(7.0),
    )


def test_an_arrival_is_answered_after_what_waits() -> None:
    """The batch in flight, then one for every two requests ahead, then its own."""
    scene = Scene()
    scene.learn_times()
    scene.send()
    assert 2 * EXEC_S == pytest.approx(scene.finish_predictor.finish_at(0.0))
    scene.wait(4)
    assert 4 * EXEC_S == pytest.approx(scene.finish_predictor.finish_at(0.0))
    assert 2 * EXEC_S == pytest.approx(scene.finish_predictor.backlog_s(0.0))


def test_what_waits_is_divided_among_the_instances() -> None:
    """Of four, which take batches of two in turn, the request behind six is in the fourth batch.

    It is not the seventh item of one batch.
    """
    item_s, single_s = 0.1, 0.1
    scene = Scene()
    for name in "bcd":
        scene.upstreams.add(Upstream(name, 2, up=True))
    for number, upstream in enumerate(scene.upstreams):
        for size in (1, 2) * 10:
            upstream.exec_time.observe(size, single_s + item_s * (size - 1))
        batch = Batch(
            number + 1, [Request(number, "k", 0.0)], 1, upstream, CloseReason.IDLE, 0.0, 0.0, 0.1
        )
        scene.in_flight.add(batch)
    scene.finish_predictor.invalidate()
    scene.wait(6)

    first_free_s, in_turn_s = single_s, 3 / 4 * (single_s + item_s)
    expected_s = first_free_s + in_turn_s + single_s
    assert expected_s == pytest.approx(scene.finish_predictor.finish_at(0.0), rel=0.05)


def test_a_forecast_holds_until_it_is_invalidated() -> None:
    """What was made of the instances is kept; what waits is asked for each time."""
    scene = Scene()
    scene.learn_times()
    scene.send()
    before = scene.finish_predictor.finish_at(0.0)
    scene.upstream.up = False
    assert before == scene.finish_predictor.finish_at(0.0)
    scene.finish_predictor.invalidate()
    assert 0.0 == scene.finish_predictor.finish_at(0.0)


def test_a_prediction_that_is_too_late_is_a_refusal() -> None:
    """The prediction is kept with the request; one whose deadline is before it is refused."""
    scene = Scene()
    scene.learn_times()
    scene.send()
    patient, hasty = (Request(n, "k", 0.0, deadline=limit) for n, limit in ((2, 0.21), (3, 0.19)))
    assert not scene.finish_predictor.refuses(patient, 0.0)
    assert 2 * EXEC_S == pytest.approx(patient.predicted_finish)
    assert scene.finish_predictor.refuses(hasty, 0.0)
    assert 1 == scene.shedding.late


def test_an_answer_later_than_predicted_widens_the_margin() -> None:
    """An answer later than predicted raises the margin for the next ones."""
    scene = Scene()
    scene.learn_times()
    scene.send()
    each = Request(2, "k", 0.0, deadline=1.0)
    assert not scene.finish_predictor.refuses(each, 0.0)
    scene.finish_predictor.learn([each], each.predicted_finish + 0.05, EXEC_S)
    assert 0.05 == pytest.approx(scene.shedding.interactive.margin_s)
    assert scene.finish_predictor.refuses(Request(3, "k", 0.0, deadline=0.22), 0.0)
    scene.finish_predictor.learn(
        [Request(4, "k", 0.0)], 9.0, EXEC_S
    )  # nothing was predicted for it
    assert 0.05 == pytest.approx(scene.shedding.interactive.margin_s, rel=0.05)
