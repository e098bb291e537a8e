"""Invariants of the batcher under random arrivals, cancellations, faults, plans and times."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.core.batch import Batch, CloseReason, Fault
from sidecar.core.batcher import Batcher
from sidecar.core.dispatch import Route, Upstream
from sidecar.core.request import TERMINAL, Request, State
from sidecar.policies.adaptive import Adaptive
from sidecar.policies.deadline import Deadline
from sidecar.policies.fixed import FixedWindow
from sidecar.policies.none import NoBatching
from sidecar.policies.planned import Planned
from tests.effort import scaled

if TYPE_CHECKING:
    from sidecar.core.policy import BatchPolicy

POLICIES: dict[str, BatchPolicy] = {
    "none": NoBatching(NoBatching.Params()),
    "fixed": FixedWindow(FixedWindow.Params(size=3, wait_s=0.02)),
    "deadline": Deadline(Deadline.Params()),
    "adaptive": Adaptive(Adaptive.Params()),
}
BATCH_MAX = 4

ARRIVAL = st.fixed_dictionaries(
    {
        "key": st.sampled_from("xy"),
        "budget_s": st.sampled_from([0.01, 0.05, math.inf]),
        "item_count": st.sampled_from([1, 1, 1, 2, 9]),
        "background": st.booleans(),
        "app": st.sampled_from(["web", "car"]),
    }
)
EVENT = st.one_of(
    st.tuples(st.just("arrive"), ARRIVAL),
    st.tuples(st.just("arrive"), ARRIVAL),
    st.tuples(st.just("cancel"), st.integers(0, 40)),
    st.tuples(st.just("finish"), st.tuples(st.integers(0, 3), st.booleans())),
    st.tuples(st.just("fail"), st.tuples(st.integers(0, 3), st.sampled_from(list(Fault)))),
    st.tuples(st.just("wait"), st.sampled_from([0.001, 0.02, 6.0])),
    st.tuples(st.just("replan"), st.sampled_from(["split", "one", "lost b"])),
    st.tuples(st.just("down"), st.sampled_from("ab")),
    st.tuples(st.just("up"), st.sampled_from("ab")),
)


class Run:
    """Plays events against a batcher and checks every invariant."""

    def __init__(self, policy: str) -> None:
        self.batcher = Batcher(
            POLICIES[policy], batch_max=BATCH_MAX, queue_max=12, fingerprint=lambda r: r.id % 5
        )
        self.upstreams = {name: Upstream(name, BATCH_MAX, name, up=True) for name in "ab"}
        for upstream in self.upstreams.values():
            for size in (1, 2, 3, 4) * 3:
                upstream.exec_time.observe(size, 0.004 + 0.001 * size)
            self.batcher.upstreams.add(upstream)
        self.now = 0.0
        self.requests: list[Request] = []
        self.in_flight: list[Batch] = []
        self.answered: Counter[int] = Counter()
        self.log: list[object] = []
        self.left: dict[object, list[int]] = {}
        self.routes: dict[str, Route] = {}

    def play(self, kind: str, what: object) -> None:
        """Apply one event, then step."""
        getattr(self, kind)(what)
        self.step()

    def arrive(self, what: dict[str, object]) -> None:
        """Admit a request."""
        deadline = self.now + what["budget_s"]  # type: ignore[operator]
        rest = {name: what[name] for name in ("item_count", "background", "app")}
        request = Request(len(self.requests), what["key"], self.now, deadline=deadline, **rest)  # type: ignore[arg-type]
        self.requests.append(request)
        self.batcher.admit(request, self.now)

    def cancel(self, number: int) -> None:
        """Cancel a request, perhaps for the second time."""
        if self.requests:
            self.batcher.cancel(self.requests[number % len(self.requests)])

    def finish(self, what: tuple[int, bool]) -> None:
        """Finish a batch, perhaps with one failed request."""
        if self.in_flight:
            batch = self.in_flight.pop(what[0] % len(self.in_flight))
            failed = [what[1] and index == 0 for index in range(len(batch.requests))]
            self.tell(self.batcher.finished(batch, failed, self.now))

    def fail(self, what: tuple[int, Fault]) -> None:
        """Fail a whole batch."""
        if self.in_flight:
            batch = self.in_flight.pop(what[0] % len(self.in_flight))
            self.tell(self.batcher.broken(batch, what[1], self.now))

    def wait(self, seconds: float) -> None:
        """Advance the time."""
        self.now += seconds

    def replan(self, how: str) -> None:
        """Apply another plan: a route per application, one for both, or class ``b`` removed."""
        if how == "split":
            self.routes = {"web": Route({"a": 1.0}), "car": Route({"a": 0.5, "b": 0.5})}
        elif how == "one":
            self.routes = {"*": Route({"a": 0.5, "b": 0.5})}
        else:
            self.routes = {"*": Route({"a": 1.0})}
        upstreams = [u for u in self.upstreams.values() if how != "lost b" or u.name == "a"]
        waits = Planned(Planned.Params({"web": 0.0, "*": 0.01}))
        self.batcher.replan(waits, self.routes, upstreams)
        self.left.clear()  # requests that wait keep their order, among those of their new route

    def down(self, name: str) -> None:
        """Make an instance unreachable."""
        self.upstreams[name].up = False

    def up(self, name: str) -> None:
        """Make an instance reachable again."""
        self.upstreams[name].up = True

    def step(self) -> None:
        """Send the batches that may leave, and check them."""
        actions = self.batcher.step(self.now)
        self.tell(actions.expired)
        for batch in actions.send:
            self.check(batch)
            self.in_flight.append(batch)
            ids = [request.id for request in batch.requests]
            self.log.append((self.now, batch.close_reason, ids, batch.upstream.name))
        for upstream in self.upstreams.values():
            held = [batch for batch in self.in_flight if batch.upstream is upstream]
            assert len(held) == upstream.in_flight <= 2
            assert all(batch.close_reason is CloseReason.FULL for batch in held[1:])

    def check(self, batch: Batch) -> None:
        """Check the invariants of a batch."""
        requests = batch.requests
        assert batch.upstream.up
        assert batch.item_count == sum(request.item_count for request in requests)
        assert (
            len(requests) == 1
            or batch.item_count <= BATCH_MAX
            or batch.close_reason is CloseReason.ISOLATION
        )
        assert 1 == len({repr(request.key) for request in requests})
        assert 1 == len({request.route for request in requests})
        assert all(request.route.admits(batch.upstream) for request in requests)
        assert all(request.deadline > self.now for request in requests)
        assert all(request.state is State.IN_FLIGHT for request in requests)
        if batch.close_reason is not CloseReason.ISOLATION:
            for request in requests:
                lane = (request.key, request.route, request.background)
                earlier = self.left.setdefault(lane, [])
                assert not earlier or earlier[-1] < request.id
                earlier.append(request.id)

    def tell(self, requests: list[Request]) -> None:
        """Count the answers to ``requests``."""
        self.answered.update(r.id for r in requests)

    def end(self) -> None:
        """Let all requests come to their end without further arrivals."""
        self.batcher.drain()
        self.replan("one")
        for upstream in self.upstreams.values():
            upstream.up = True
        for _ in range(300):
            if self.batcher.idle:
                return
            self.now += 1.0  # ejected instances come back
            self.step()
            if self.in_flight:
                batch = self.in_flight.pop(0)
                self.tell(self.batcher.finished(batch, [False] * len(batch.requests), self.now))
        msg = "requests are left over"
        raise AssertionError(msg)


@settings(max_examples=scaled(400))
@given(st.sampled_from(sorted(POLICIES)), st.lists(EVENT, min_size=10, max_size=150))
def test_batcher_invariants_hold(policy: str, events: list[tuple[str, object]]) -> None:
    """Requests end once, in order and in time, in batches that keep sizes, keys and routes."""
    run = Run(policy)
    for event in events:
        run.play(*event)
    run.end()
    assert all(request.state in TERMINAL for request in run.requests)
    heard = {State.DONE, State.FAILED, State.EXPIRED}
    assert {r.id: 1 for r in run.requests if r.state in heard} == dict(run.answered)
    assert 0 == run.batcher.queued == run.batcher.in_flight


@settings(max_examples=scaled(40))
@given(st.sampled_from(["none", "fixed", "deadline"]), st.lists(EVENT, max_size=40))
def test_the_same_calls_give_the_same_actions(
    policy: str, events: list[tuple[str, object]]
) -> None:
    """The actions depend on no clock, address or hash."""
    runs = [Run(policy), Run(policy)]
    for run in runs:
        for event in events:
            run.play(*event)
    assert runs[0].log == runs[1].log
