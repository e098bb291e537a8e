"""Dispatch to several instances: routes, shares, ejection and pipelined batches."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import pytest

from sidecar.core.batch import Batch, CloseReason, Fault
from sidecar.core.batcher import Batcher
from sidecar.core.dispatch import Route, Upstream, apply_conditions
from sidecar.core.request import Request, State
from sidecar.policies.deadline import Deadline
from sidecar.policies.planned import Planned

if TYPE_CHECKING:
    from collections.abc import Mapping

BATCH_MAX = 4


def planned(routes: Mapping[str, Route], waits: Mapping[str, float], *names: str) -> Batcher:
    """Return a batcher under a plan with one instance of each named class."""
    made = Batcher(Deadline(Deadline.Params()), batch_max=32, queue_max=1000)
    upstreams = [Upstream(name, BATCH_MAX, name, up=True) for name in names]
    made.replan(Planned(Planned.Params(waits)), routes, upstreams)
    return made


def eager(*names: str, exec_s: float | None = None) -> Batcher:
    """Return a batcher without a plan whose instances are known to take ``exec_s`` per batch."""
    made = Batcher(Deadline(Deadline.Params()), batch_max=BATCH_MAX, queue_max=1000)
    for name in names:
        upstream = Upstream(name, BATCH_MAX, up=True)
        for size in (1, 2, 3, 4) * 3:
            if exec_s:
                upstream.exec_time.observe(size, exec_s)
        made.upstreams.add(upstream)
    return made


def arrive(made: Batcher, *ids: int, app: str = "*", now: float = 0.0) -> None:
    """Admit requests of one application."""
    for number in ids:
        made.admit(Request(number, "k", now, app=app), now)


def ids(batch: Batch) -> list[int]:
    """Return the request numbers of ``batch``."""
    return [request.id for request in batch.requests]


def test_applications_are_sent_along_their_routes() -> None:
    """Two applications with routes to different classes share no instance."""
    routes = {"web": Route({"small": 1.0}), "car": Route({"big": 1.0})}
    made = planned(routes, {"*": 0.0}, "small", "big")
    for number in range(4):
        arrive(made, number, app=("web", "car")[number % 2])
    sent = {batch.upstream.name: ids(batch) for batch in made.step(0.0).send}
    assert {"small": [0, 2], "big": [1, 3]} == sent


def test_shared_batch_is_sent_at_earliest_wait_of_its_applications() -> None:
    """A shared batch leaves at ``min(a_i + T_i)``, when its most urgent request must."""
    route = Route({"a": 1.0})
    made = planned({"slow": route, "fast": route}, {"slow": 1.0, "fast": 0.01}, "a")
    arrive(made, 1, app="slow", now=0.0)
    arrive(made, 2, app="fast", now=0.5)
    assert not made.step(0.5).send
    assert 0.51 == made.wake_at(0.5)
    (batch,) = made.step(0.51).send
    assert ([1, 2], CloseReason.DEPARTURE) == (ids(batch), batch.close_reason)


def test_unnamed_applications_use_wildcard_route() -> None:
    """The route ``*`` serves every application that the plan does not name."""
    made = planned({"*": Route({"a": 1.0})}, {"*": 0.0}, "a", "b")
    arrive(made, 1, app="unheard-of")
    assert ["a"] == [batch.upstream.name for batch in made.step(0.0).send]


def test_route_shares_are_counted_in_items() -> None:
    """The shares of a route hold in items, even where batch sizes differ."""
    made = planned({"*": Route({"a": 0.75, "b": 0.25})}, {"*": 0.0}, "a", "b")
    items = {"a": 0, "b": 0}
    for number in range(400):
        arrive(made, *range(10 * number, 10 * number + 1 + number % 3))
        for batch in made.step(0.0).send:
            items[batch.upstream.name] += batch.item_count
            made.finished(batch, [False] * len(batch.requests), 0.0)
    assert pytest.approx(3.0, rel=0.05) == items["a"] / items["b"]


def test_new_plan_keeps_waiting_and_in_flight_requests() -> None:
    """Waiting requests follow a new plan, and batches in flight on a removed class still return."""
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
def test_answered_requests_are_released_after_plan_change() -> None:
    """Bodies of answered requests are released without the cycle collector after a plan change."""
    made = planned({"*": Route({"a": 1.0})}, {"*": 9.0}, "a")
    body = {"a body"}  # not bytes, as it has to be watched
    watched = weakref.ref(body)
    made.admit(Request(1, "k", 0.0, payload=body), 0.0)
    same = list(made.upstreams)
    made.replan(Planned(Planned.Params({"*": 0.0})), {"*": Route({"a": 1.0})}, same)
    made.finished(made.step(0.0).send[0], [False], 0.1)
    del body
    assert watched() is None


def test_divided_batch_is_retried_by_new_plan() -> None:
    """The parts of a divided batch follow a new plan."""
    made = planned({"*": Route({"a": 1.0})}, {"*": 0.0}, "a")
    arrive(made, 1, 2)
    (batch,) = made.step(0.0).send
    made.broken(batch, Fault.ANSWERED, 0.0)
    new = Upstream("b", BATCH_MAX, "b", up=True)
    made.replan(Planned(Planned.Params({"*": 0.0})), {"*": Route({"b": 1.0})}, [new])
    assert ["b"] == [sent.upstream.name for sent in made.step(0.0).send]


def test_batch_failing_on_removed_class_is_retried_by_new_plan() -> None:
    """A batch that fails after its class was removed is sent again where the new plan says."""
    made = planned({"*": Route({"a": 1.0})}, {"*": 0.0}, "a")
    arrive(made, 1, 2)
    (batch,) = made.step(0.0).send
    new = Upstream("b", BATCH_MAX, "b", up=True)
    made.replan(Planned(Planned.Params({"*": 0.0})), {"*": Route({"b": 1.0})}, [new])
    made.broken(batch, Fault.UNSENT, 0.0)
    assert [("b", [1, 2])] == [(sent.upstream.name, ids(sent)) for sent in made.step(0.0).send]


def test_retried_batch_is_split_to_fit_smaller_instance() -> None:
    """A batch that is sent again is split at once to fit smaller instances."""
    made = planned({"*": Route({"a": 1.0})}, {"*": 0.0}, "a")
    arrive(made, 1, 2, 3, 4)
    (batch,) = made.step(0.0).send
    made.broken(batch, Fault.UNSENT, 0.0)
    small = [Upstream(name, 2, "b", up=True) for name in ("b1", "b2")]
    made.replan(Planned(Planned.Params({"*": 0.0})), {"*": Route({"b": 1.0})}, small)
    assert [[1, 2], [3, 4]] == [ids(piece) for piece in made.step(0.0).send]


def test_retried_batch_is_split_by_route() -> None:
    """A batch that is sent again is split where its applications now have different routes."""
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


def test_failing_instance_is_ejected_then_probed_with_one_batch() -> None:
    """After five failures in a row an instance is ejected for five seconds, then gets one batch."""
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
    """The only instance is never ejected, as failing is better than serving nothing."""
    made = eager("only")
    for number in range(20):
        arrive(made, number)
        (batch,) = made.step(0.0).send
        made.broken(batch, Fault.ANSWERED, 0.0)
    (only,) = made.upstreams
    assert only.available(0.0)


def test_one_bad_request_ejects_no_instance() -> None:
    """Dividing a batch with one bad request ejects no instance, as successes come in between."""
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


def test_busy_fast_instance_gets_only_full_second_batch() -> None:
    """A fast instance gets a second batch while it works, but only a full one."""
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
    """A slow function gets one batch at a time, so that the next one can still change."""
    made = eager("a", exec_s=0.5)
    arrive(made, *range(20))
    assert 1 == len(made.step(0.0).send)


def test_execution_time_excludes_wait_behind_previous_batch() -> None:
    """The execution time of a batch excludes its wait behind another."""
    made = eager("a", exec_s=0.01)
    arrive(made, *range(8))
    first, second = made.step(0.0).send
    made.finished(first, [False] * 4, 0.012)
    made.finished(second, [False] * 4, 0.021)
    assert [0.012, 0.009] == [pytest.approx(first.exec_s), pytest.approx(second.exec_s)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_only_running_batch_is_blamed_for_instance_death(order: tuple[int, int]) -> None:
    """After a death the second batch is sent again whole, whichever is reported first."""
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
    """Batch sizes count items, and a request larger than any batch is sent alone."""
    made = Batcher(Deadline(Deadline.Params()), batch_max=4, queue_max=100)
    for name in "abcd":
        made.upstreams.add(Upstream(name, 4, up=True))
    for number, items in enumerate((3, 2, 2, 9, 1), 1):
        made.admit(Request(number, "k", 0.0, item_count=items), 0.0)
    assert [[1], [2, 3], [4], [5]] == [ids(batch) for batch in made.step(0.0).send]


def test_instance_without_pipelining_gets_no_second_batch() -> None:
    """An instance without pipelining gets no second batch, however fast it is."""
    made = eager("a", exec_s=0.01)
    (instance,) = made.upstreams
    instance.pipelines = False
    arrive(made, *range(8))
    (first,) = made.step(0.0).send
    made.finished(first, [False] * 4, 0.01)
    assert [4, 5, 6, 7] == ids(*made.step(0.01).send)


@pytest.mark.parametrize("is_other_well", [True, False])
def test_an_interfered_instance_gets_batches_only_if_none_of_its_class_is_well(
    *, is_other_well: bool
) -> None:
    """Interfered instances are left out only while one of their class is well and reachable."""
    names = ("a", "b", "c", "gone")
    a, b, c, gone = (Upstream(name, 4, "small", up=name != "gone") for name in names)
    b.instance_class = "big"
    conditions = {"a": "interfered", "gone": "interfered"}
    if not is_other_well:
        conditions["c"] = "overloaded"
    states = apply_conditions([a, b, c, gone], conditions)
    assert {("small", "a"), ("big", "b"), ("small", "c")} == set(states)
    assert is_other_well == a.interfered
    assert (False, False) == (b.interfered, b.overloaded)
    assert is_other_well != c.overloaded
    apply_conditions([a, b, c, gone], {})
    assert [False] * 2 == [a.interfered, c.overloaded]
