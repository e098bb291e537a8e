"""Many instances: routes, shares, ejection, a second batch behind the first."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import pytest

from sidecar.core.batch import Batch, CloseReason, Fault
from sidecar.core.batcher import Batcher
from sidecar.core.dispatch import Route, Upstream
from sidecar.core.request import Request, State
from sidecar.policies.deadline import Deadline
from sidecar.policies.planned import Planned

if TYPE_CHECKING:
    from collections.abc import Mapping

BATCH_MAX = 4


def planned(routes: Mapping[str, Route], waits: Mapping[str, float], *names: str) -> Batcher:
    """A batcher under a plan with an instance of each class named."""
    made = Batcher(Deadline(Deadline.Params()), batch_max=32, queue_max=1000)
    upstreams = [Upstream(name, BATCH_MAX, name, up=True) for name in names]
    made.replan(Planned(Planned.Params(waits)), routes, upstreams)
    return made


def eager(*names: str, exec_s: float | None = None) -> Batcher:
    """A batcher without a plan whose instances take ``exec_s`` a batch, as it knows."""
    made = Batcher(Deadline(Deadline.Params()), batch_max=BATCH_MAX, queue_max=1000)
    for name in names:
        upstream = Upstream(name, BATCH_MAX, up=True)
        for size in (1, 2, 3, 4) * 3:
            if exec_s:
                upstream.exec_time.observe(size, exec_s)
        made.upstreams.add(upstream)
    return made


def arrive(made: Batcher, *ids: int, app: str = "*", now: float = 0.0) -> None:
    """Requests of one application."""
    for number in ids:
        made.admit(Request(number, "k", now, app=app), now)


def ids(batch: Batch) -> list[int]:
    """The numbers of the requests in it."""
    return [request.id for request in batch.requests]


def test_an_application_goes_where_its_route_says() -> None:
    """Two applications on two classes share nothing; no class takes the other's requests."""
    routes = {"web": Route({"small": 1.0}), "car": Route({"big": 1.0})}
    made = planned(routes, {"*": 0.0}, "small", "big")
    for number in range(4):
        arrive(made, number, app=("web", "car")[number % 2])
    sent = {batch.upstream.name: ids(batch) for batch in made.step(0.0).send}
    assert {"small": [0, 2], "big": [1, 3]} == sent


def test_applications_on_one_route_share_batches_and_the_tightest_wait_decides() -> None:
    """``min(a_i + T_i)``: the batch leaves when the most urgent one must, with all that wait."""
    route = Route({"a": 1.0})
    made = planned({"slow": route, "fast": route}, {"slow": 1.0, "fast": 0.01}, "a")
    arrive(made, 1, app="slow", now=0.0)
    arrive(made, 2, app="fast", now=0.5)
    assert not made.step(0.5).send
    assert 0.51 == made.wake_at(0.5)
    (batch,) = made.step(0.51).send
    assert ([1, 2], CloseReason.DEPARTURE) == (ids(batch), batch.close_reason)


def test_applications_without_a_route_take_the_one_for_all_others() -> None:
    """``*`` is every application that the plan does not name."""
    made = planned({"*": Route({"a": 1.0})}, {"*": 0.0}, "a", "b")
    arrive(made, 1, app="unheard-of")
    assert ["a"] == [batch.upstream.name for batch in made.step(0.0).send]


def test_the_shares_of_a_route_hold_in_items() -> None:
    """Three to one, also where the batches have different sizes."""
    made = planned({"*": Route({"a": 0.75, "b": 0.25})}, {"*": 0.0}, "a", "b")
    items = {"a": 0, "b": 0}
    for number in range(400):
        arrive(made, *range(10 * number, 10 * number + 1 + number % 3))
        for batch in made.step(0.0).send:
            items[batch.upstream.name] += batch.item_count
            made.finished(batch, [False] * len(batch.requests), 0.0)
    assert pytest.approx(3.0, rel=0.05) == items["a"] / items["b"]


def test_a_new_plan_keeps_what_waits_and_what_is_in_flight() -> None:
    """Requests go on under the new routes and waits; a batch of a class that is gone comes back."""
    made = planned({"*": Route({"a": 1.0})}, {"*": 9.0}, "a")
    arrive(made, 1, 2, 3, 4)
    (flying,) = made.step(0.0).send
    arrive(made, 5, 6)
    new = Upstream("b", BATCH_MAX, "b", up=True)
    made.replan(Planned(Planned.Params({"*": 0.0})), {"*": Route({"b": 1.0})}, [new])
    (batch,) = made.step(0.0).send
    assert ([5, 6], new) == (ids(batch), batch.upstream)
    assert [1, 2, 3, 4] == [r.id for r in made.finished(flying, [False] * 4, 0.1)]
    made.finished(batch, [False] * 2, 0.1)
    assert made.idle


@pytest.mark.usefixtures("no_collector")
def test_nothing_keeps_answered_requests_after_the_plan_has_changed() -> None:
    """Bodies are released at once: the collector of cycles runs rarely, and late."""
    made = planned({"*": Route({"a": 1.0})}, {"*": 9.0}, "a")
    body = {"a body"}  # not bytes, as it has to be watched
    watched = weakref.ref(body)
    made.admit(Request(1, "k", 0.0, payload=body), 0.0)
    same = list(made.upstreams)
    made.replan(Planned(Planned.Params({"*": 0.0})), {"*": Route({"a": 1.0})}, same)
    made.finished(made.step(0.0).send[0], [False], 0.1)
    del body
    assert watched() is None


def test_a_failed_batch_is_sent_again_where_the_new_plan_says() -> None:
    """The parts of a divided batch follow the plan as well."""
    made = planned({"*": Route({"a": 1.0})}, {"*": 0.0}, "a")
    arrive(made, 1, 2)
    (batch,) = made.step(0.0).send
    made.broken(batch, Fault.ANSWERED, 0.0)
    new = Upstream("b", BATCH_MAX, "b", up=True)
    made.replan(Planned(Planned.Params({"*": 0.0})), {"*": Route({"b": 1.0})}, [new])
    assert ["b"] == [sent.upstream.name for sent in made.step(0.0).send]


def test_what_fails_after_the_plan_has_changed_goes_where_the_new_one_says() -> None:
    """It was in flight meanwhile, and the class that it was sent to is gone."""
    made = planned({"*": Route({"a": 1.0})}, {"*": 0.0}, "a")
    arrive(made, 1, 2)
    (batch,) = made.step(0.0).send
    new = Upstream("b", BATCH_MAX, "b", up=True)
    made.replan(Planned(Planned.Params({"*": 0.0})), {"*": Route({"b": 1.0})}, [new])
    made.broken(batch, Fault.UNSENT, 0.0)
    assert [("b", [1, 2])] == [(sent.upstream.name, ids(sent)) for sent in made.step(0.0).send]


def test_what_is_sent_again_fits_its_new_instance() -> None:
    """A batch that a large instance did not take goes to small ones in pieces, none of it later."""
    made = planned({"*": Route({"a": 1.0})}, {"*": 0.0}, "a")
    arrive(made, 1, 2, 3, 4)
    (batch,) = made.step(0.0).send
    made.broken(batch, Fault.UNSENT, 0.0)
    small = [Upstream(name, 2, "b", up=True) for name in ("b1", "b2")]
    made.replan(Planned(Planned.Params({"*": 0.0})), {"*": Route({"b": 1.0})}, small)
    assert [[1, 2], [3, 4]] == [ids(piece) for piece in made.step(0.0).send]


def test_what_is_sent_again_parts_where_its_ways_part() -> None:
    """Members of one batch whose applications now have different routes go to different ones."""
    made = planned({"*": Route({"a": 1.0})}, {"*": 0.0}, "a")
    arrive(made, 1, app="web")
    arrive(made, 2, app="car")
    (batch,) = made.step(0.0).send
    made.broken(batch, Fault.UNSENT, 0.0)
    routes = {"web": Route({"a": 1.0}), "*": Route({"b": 1.0})}
    new = [Upstream(name, BATCH_MAX, name, up=True) for name in ("a", "b")]
    made.replan(Planned(Planned.Params({"*": 0.0})), routes, new)
    sent = made.step(0.0).send
    assert [("a", [1]), ("b", [2])] == [(part.upstream.name, ids(part)) for part in sent]


def test_an_instance_that_fails_everything_is_ejected_and_proves_itself() -> None:
    """Five failures in a row: no more for five seconds, then one batch; a success ends it."""
    made = eager("bad", "good")
    bad = next(upstream for upstream in made.upstreams if upstream.name == "bad")
    now, failures = 0.0, 0
    while bad.available(now):
        arrive(made, 1000 + failures)
        for batch in made.step(now).send:
            if batch.upstream is bad:
                made.broken(batch, Fault.ANSWERED, now)
                failures += 1
            else:
                made.finished(batch, [False], now)
    assert 5 == failures
    assert 5.0 == made.upstreams.next_ejection_ends(now)
    for upstream in made.upstreams:
        upstream.items_sent = 0.0 if upstream is bad else 1.0
    arrive(made, 1)
    (batch,) = made.step(4.9).send
    assert "good" == batch.upstream.name
    arrive(made, 2)
    (proof,) = made.step(5.0).send
    assert bad is proof.upstream
    made.broken(proof, Fault.ANSWERED, 5.0)
    assert 15.0 == bad.ejected_until


def test_the_last_instance_is_never_ejected() -> None:
    """Failing is better than serving none."""
    made = eager("only")
    for number in range(20):
        arrive(made, number)
        (batch,) = made.step(0.0).send
        made.broken(batch, Fault.ANSWERED, 0.0)
    (only,) = made.upstreams
    assert only.available(0.0)


def test_one_bad_request_ejects_no_instance() -> None:
    """Dividing its batch makes several failures, with successes between them."""
    made = eager("a", "b")
    arrive(made, 1, 2, 3, 4)
    for _ in range(30):
        for batch in made.step(0.0).send:
            if 1 in ids(batch):
                made.broken(batch, Fault.ANSWERED, 0.0)
            else:
                made.finished(batch, [False] * len(batch.requests), 0.0)
    assert made.idle
    assert all(upstream.available(0.0) for upstream in made.upstreams)


def test_a_second_full_batch_follows_a_quick_one_and_nothing_less() -> None:
    """The instance gets its next batch while it works, if there is a whole one."""
    made = eager("a", exec_s=0.01)
    arrive(made, 1, 2, 3, 4, 5, 6, 7)
    assert [[1, 2, 3, 4]] == [ids(batch) for batch in made.step(0.0).send]
    arrive(made, 8)
    (second,) = made.step(0.0).send
    assert [5, 6, 7, 8] == ids(second)
    assert 0.01 == pytest.approx(second.starts)
    arrive(made, *range(9, 20))
    assert not made.step(0.0).send


def test_a_slow_function_gets_one_batch_at_a_time() -> None:
    """Where a batch takes long, the next can still change, and loses nothing."""
    made = eager("a", exec_s=0.5)
    arrive(made, *range(20))
    assert 1 == len(made.step(0.0).send)


def test_execution_is_measured_from_when_the_instance_was_free() -> None:
    """A batch that waited behind another is not blamed for the wait."""
    made = eager("a", exec_s=0.01)
    arrive(made, *range(8))
    first, second = made.step(0.0).send
    made.finished(first, [False] * 4, 0.012)
    made.finished(second, [False] * 4, 0.021)
    assert [0.012, 0.009] == [pytest.approx(first.exec_s), pytest.approx(second.exec_s)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_only_the_first_batch_can_have_killed_the_instance(order: tuple[int, int]) -> None:
    """The one behind it is sent again whole, whichever is heard of first."""
    made = eager("a", exec_s=0.01)
    arrive(made, *range(8))
    batches = made.step(0.0).send
    (instance,) = made.upstreams
    instance.up = False
    for index in order:
        made.broken(batches[index], Fault.DIED, 0.005)
    instance.up = True
    again = []
    while not made.idle:
        for batch in made.step(0.01).send:
            again.append(ids(batch))
            made.finished(batch, [False] * len(batch.requests), 0.01)
    assert [[0], [1], [2], [3], [4, 5, 6, 7]] == sorted(again)
    assert all(r.state is State.DONE for batch in batches for r in batch.requests)


def test_batches_are_counted_in_items() -> None:
    """Sizes are counted in items; what is larger than any batch is sent alone."""
    made = Batcher(Deadline(Deadline.Params()), batch_max=4, queue_max=100)
    for name in "abcd":
        made.upstreams.add(Upstream(name, 4, up=True))
    for number, items in enumerate((3, 2, 2, 9, 1), 1):
        made.admit(Request(number, "k", 0.0, item_count=items), 0.0)
    assert [[1], [2, 3], [4], [5]] == [ids(batch) for batch in made.step(0.0).send]


def test_an_instance_may_refuse_a_second_batch() -> None:
    """However fast it is."""
    made = eager("a", exec_s=0.01)
    (instance,) = made.upstreams
    instance.pipelines = False
    arrive(made, *range(8))
    (first,) = made.step(0.0).send
    made.finished(first, [False] * 4, 0.01)
    assert [4, 5, 6, 7] == ids(*made.step(0.01).send)
