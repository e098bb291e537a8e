"""What must hold whatever happens: random arrivals, cancels, faults and times."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidecar.core.batcher import Batch, Batcher, Fault
from sidecar.core.dispatch import Upstream
from sidecar.core.request import Request
from sidecar.core.states import TERMINAL, State
from sidecar.policies.adaptive import Adaptive
from sidecar.policies.deadline import Deadline
from sidecar.policies.fixed import FixedWindow
from sidecar.policies.none import NoBatching

if TYPE_CHECKING:
    from sidecar.core.policy import BatchPolicy

POLICIES: dict[str, BatchPolicy] = {
    "none": NoBatching(NoBatching.Params()),
    "fixed": FixedWindow(FixedWindow.Params(size=3, wait_s=0.02)),
    "deadline": Deadline(Deadline.Params()),
    "adaptive": Adaptive(Adaptive.Params()),
}
BATCH_MAX = 4

EVENT = st.one_of(
    st.tuples(st.just("arrive"), st.sampled_from("xy"), st.sampled_from([0.01, 0.05, math.inf])),
    st.tuples(st.just("cancel"), st.integers(0, 40), st.none()),
    st.tuples(st.just("finish"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("break"), st.integers(0, 3), st.sampled_from(list(Fault))),
    st.tuples(st.just("wait"), st.sampled_from([0.001, 0.02]), st.none()),
)


class Run:
    """Plays events against a batcher and watches every promise."""

    def __init__(self, policy: str) -> None:
        self.batcher = Batcher(
            POLICIES[policy], batch_max=BATCH_MAX, queue_max=12, fingerprint=lambda r: r.id % 5
        )
        for name in "ab":
            self.batcher.upstreams.add(Upstream(name, BATCH_MAX, up=True))
        self.now = 0.0
        self.requests: list[Request] = []
        self.flying: list[Batch] = []
        self.told: Counter[int] = Counter()
        self.log: list[object] = []
        self.first_rides: list[int] = []

    def play(self, kind: str, a: object, b: object) -> None:
        """One event, then a step."""
        if kind == "arrive":
            assert isinstance(b, float)
            request = Request(len(self.requests), a, self.now, deadline=self.now + b)
            self.requests.append(request)
            self.batcher.admit(request, self.now)
        elif kind == "cancel" and self.requests:
            self.batcher.cancel(self.requests[int(a) % len(self.requests)])  # type: ignore[call-overload]
        elif kind == "finish" and self.flying:
            batch = self.flying.pop(int(a) % len(self.flying))  # type: ignore[call-overload]
            failed = [bool(b) and i == 0 for i in range(len(batch.requests))]
            self.tell(self.batcher.finished(batch, failed, self.now))
        elif kind == "break" and self.flying:
            batch = self.flying.pop(int(a) % len(self.flying))  # type: ignore[call-overload]
            assert isinstance(b, Fault)
            self.tell(self.batcher.broken(batch, b, self.now))
        elif kind == "wait":
            self.now += float(a)  # type: ignore[arg-type]
        self.step()

    def step(self) -> None:
        """Let leave what may, and check it."""
        actions = self.batcher.step(self.now)
        self.tell(actions.expired)
        for batch in actions.send:
            riders = batch.requests
            assert 1 <= len(riders) <= BATCH_MAX
            assert 1 == len({repr(r.key) for r in riders})
            assert all(r.deadline > self.now for r in riders)
            assert all(r.state is State.IN_FLIGHT for r in riders)
            if batch.attempt == 1 and batch.lineage is None:
                self.first_rides += [r.id for r in riders if r.key == "x"]
            self.flying.append(batch)
            self.log.append((self.now, batch.closed, [r.id for r in riders], batch.upstream.name))
        in_flight = sum(len(b.requests) for b in self.flying)
        assert len(self.flying) <= 2
        assert in_flight <= 2 * BATCH_MAX

    def tell(self, requests: list[Request]) -> None:
        """The callers of ``requests`` hear their fate."""
        self.told.update(r.id for r in requests)

    def finish(self) -> None:
        """No more arrivals: everything comes to its end."""
        self.batcher.drain()
        for _ in range(200):
            if self.batcher.idle:
                return
            self.step()
            if self.flying:
                batch = self.flying.pop(0)
                self.tell(self.batcher.finished(batch, [False] * len(batch.requests), self.now))
        msg = "requests are left over"
        raise AssertionError(msg)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(POLICIES)), st.lists(EVENT, max_size=60))
def test_every_promise_holds(policy: str, events: list[tuple[str, object, object]]) -> None:
    """One end each, sizes and keys kept, nobody sent late, first in first out, all told once."""
    run = Run(policy)
    for event in events:
        run.play(*event)
    run.finish()
    assert all(request.state in TERMINAL for request in run.requests)
    heard = {State.DONE, State.FAILED, State.EXPIRED}
    assert {r.id: 1 for r in run.requests if r.state in heard} == dict(run.told)
    assert sorted(run.first_rides) == run.first_rides
    assert 0 == run.batcher.queued == run.batcher.in_flight


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["none", "fixed", "deadline"]), st.lists(EVENT, max_size=40))
def test_the_same_calls_give_the_same_actions(
    policy: str, events: list[tuple[str, object, object]]
) -> None:
    """Nothing depends on a clock, an address or a hash."""
    runs = [Run(policy), Run(policy)]
    for run in runs:
        for event in events:
            run.play(*event)
    assert runs[0].log == runs[1].log
