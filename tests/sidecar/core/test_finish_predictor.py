"""Prediction of finish times on one fast instance that is busy with one request."""

from __future__ import annotations

import pytest

from sidecar.core.admission.finish_predictor import FinishPredictor
from sidecar.core.admission.shedding import Shedding
from sidecar.core.batch import Batch, CloseReason
from sidecar.core.dispatch import ANYWHERE, Route, Upstream, Upstreams
from sidecar.core.in_flight import InFlight
from sidecar.core.queue import Queue
from sidecar.core.request import Request, State, advance

EXEC_S = 0.1  # of a batch of any size


class Scene:
    """Predictor and the state that it reads."""

    def __init__(self, mode: str = "on") -> None:
        self.queue, self.upstreams, self.in_flight = Queue(), Upstreams(), InFlight()
        self.shedding = Shedding(mode, cap=1.0)
        self.finish_predictor = FinishPredictor(
            self.queue, self.upstreams, self.in_flight, self.shedding
        )
        self.upstream = Upstream("a", 2, up=True)
        self.upstreams.add(self.upstream)

    def learn_times(self) -> None:
        """Teach the instance its execution times."""
        for size in (1, 2) * 10:
            self.upstream.exec_time.observe(size, EXEC_S)

    def send(self) -> None:
        """Send a batch of one at time zero."""
        batch = Batch(
            1, [Request(1, "k", 0.0)], 1, self.upstream, CloseReason.IDLE, 0.0, 0.0, EXEC_S
        )
        self.in_flight.add(batch)
        self.finish_predictor.invalidate()

    def wait(self, count: int, route: Route = ANYWHERE, *, background: bool = False) -> None:
        """Add ``count`` requests of ``route`` to the queue."""
        for number in range(count):
            request = Request(10 + number, "k", 0.0, background=background)
            request.route = route
            advance(request, State.QUEUED)
            self.queue.push(request)


def test_no_backlog_is_predicted_with_unknown_times_or_idle_instance() -> None:
    """With unknown times or an idle instance, the prediction is now and the backlog zero."""
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


def test_new_request_is_predicted_to_finish_after_backlog() -> None:
    """An arrival waits for the batch in flight, one batch per two requests ahead, and its own."""
    scene = Scene()
    scene.learn_times()
    scene.send()
    assert 2 * EXEC_S == pytest.approx(scene.finish_predictor.finish_at(0.0))
    scene.wait(4)
    assert 4 * EXEC_S == pytest.approx(scene.finish_predictor.finish_at(0.0))
    assert 2 * EXEC_S == pytest.approx(scene.finish_predictor.backlog_s(0.0))


def busy(*instances: tuple[str, int, float]) -> Scene:
    """Return a scene with busy instances: class, largest batch and seconds of each; all alone."""
    scene = Scene()
    upstreams = [
        Upstream(str(number), batch_max, name, up=True)
        for number, (name, batch_max, _) in enumerate(instances)
    ]
    for number, (upstream, (_, batch_max, exec_s)) in enumerate(
        zip(upstreams, instances, strict=True)
    ):
        for size in (1, batch_max) * 10:
            upstream.exec_time.observe(size, exec_s)
        scene.upstreams.add(upstream)
        members = [Request(number, "k", 0.0)]
        scene.in_flight.add(Batch(number, members, 1, upstream, CloseReason.IDLE, 0.0, 0.0, exec_s))
    scene.upstreams.keep(upstreams)
    return scene


def test_waiting_requests_are_divided_among_instances() -> None:
    """Four instances take batches of two, so the request behind six is in the fourth batch."""
    scene = busy(*[("", 2, 0.1)] * 4)
    scene.wait(6)
    assert 0.2 == pytest.approx(scene.finish_predictor.finish_at(0.0))
    scene.wait(2)
    assert 0.3 == pytest.approx(scene.finish_predictor.finish_at(0.0))


def test_fast_instance_takes_several_batches_during_one_of_a_slow_one() -> None:
    """The slow instance delays only the requests that are in its batch."""
    scene = busy(("", 2, 0.1), ("", 2, 1.05))
    finish_at = scene.finish_predictor.finish_at
    assert 0.2 == pytest.approx(finish_at(0.0))
    scene.wait(18)
    assert 1.1 == pytest.approx(finish_at(0.0))
    scene.wait(2)
    assert 2.1 == pytest.approx(finish_at(0.0))
    scene.wait(2)  # behind the listed batches, which are repeated
    assert 1.2 == pytest.approx(finish_at(0.0), rel=0.01)


def test_prediction_is_for_the_route_of_the_request() -> None:
    """Requests that go to fast instances are not refused because others are slow."""
    scene = busy(("fast", 2, 0.1), ("slow", 2, 1.0))
    fast, slow = Route({"fast": 1.0}), Route({"slow": 1.0})
    predictor = scene.finish_predictor
    assert 0.2 == pytest.approx(predictor.finish_at(0.0, fast))
    assert 2.0 == pytest.approx(predictor.finish_at(0.0, slow))
    request = Request(9, "k", 0.0, deadline=0.5)
    request.route = fast
    assert not predictor.refuses(request, 0.0)
    request.route = slow
    assert predictor.refuses(request, 0.0)


def test_other_routes_count_by_share_of_common_instances() -> None:
    """Ten of eleven requests that may go to both instances are executed by the fast one."""
    scene = busy(("fast", 2, 0.1), ("slow", 2, 1.0))
    fast, slow, both = Route({"fast": 1.0}), Route({"slow": 1.0}), Route({"fast": 1.0, "slow": 1.0})
    scene.wait(23, both)
    scene.wait(8, slow)
    assert 0.1 + 10 * 0.1 + 0.1 == pytest.approx(scene.finish_predictor.finish_at(0.0, fast))
    assert 1.0 + 5 * 1.0 + 1.0 == pytest.approx(scene.finish_predictor.finish_at(0.0, slow))


def test_background_requests_count_only_on_their_own_route() -> None:
    """Background requests for slow instances delay no interactive request for fast ones."""
    scene = busy(("fast", 2, 0.1), ("slow", 2, 1.0))
    fast, slow = Route({"fast": 1.0}), Route({"slow": 1.0})
    scene.wait(20, slow)
    scene.wait(200, fast, background=True)
    assert 0.2 == pytest.approx(scene.finish_predictor.finish_at(0.0, fast))
    scene.wait(20, fast)
    scene.wait(200, slow, background=True)
    assert 0.1 + 11 * 0.1 + 0.1 == pytest.approx(scene.finish_predictor.finish_at(0.0, fast))


def test_route_without_instances_predicts_no_late_response() -> None:
    """A request whose variant is still loading waits."""
    scene = busy(("slow", 2, 1.0))
    assert 0.0 == scene.finish_predictor.finish_at(0.0, Route({"loading": 1.0}))


def test_forecast_is_cached_until_invalidated() -> None:
    """The forecast of the instances is kept until it is invalidated."""
    scene = Scene()
    scene.learn_times()
    scene.send()
    before = scene.finish_predictor.finish_at(0.0)
    scene.upstream.up = False
    assert before == scene.finish_predictor.finish_at(0.0)
    scene.finish_predictor.invalidate()
    assert 0.0 == scene.finish_predictor.finish_at(0.0)


def test_request_predicted_after_its_deadline_is_refused() -> None:
    """A request predicted to finish after its deadline is refused, else the prediction is kept."""
    scene = Scene()
    scene.learn_times()
    scene.send()
    patient, hasty = (Request(n, "k", 0.0, deadline=limit) for n, limit in ((2, 0.21), (3, 0.19)))
    assert not scene.finish_predictor.refuses(patient, 0.0)
    assert 2 * EXEC_S == pytest.approx(patient.predicted_finish)
    assert scene.finish_predictor.refuses(hasty, 0.0)
    assert 1 == scene.shedding.late


def test_response_later_than_predicted_raises_margin() -> None:
    """An answer later than predicted raises the margin for later requests."""
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
