"""The deadline policy picks the same batch under overload as a search of the whole queue."""

from __future__ import annotations

import math
from collections.abc import Sequence  # noqa: TC003 - hypothesis resolves annotations

from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.background_share import BackgroundShare
from sidecar.core.exec_time import ExecTime
from sidecar.core.group import Group
from sidecar.core.policy import Decision, Waiting
from sidecar.core.request import Request, State, advance
from sidecar.policies.deadline import _most_saved

BASE_S, ITEM_S = 0.01, 0.001
requests = st.tuples(
    st.one_of(st.floats(0.0, 0.1), st.just(math.inf)), st.sampled_from([1, 1, 1, 2, 5])
)


class Queue:
    """Group of requests as a policy sees it; counts the requests shown to the policy."""

    def __init__(self, drawn: Sequence[tuple[float, int]], limit: int) -> None:
        self.shown = 0
        self._group = Group(BackgroundShare(0.1))
        for number, (deadline, items) in enumerate(drawn):
            request = Request(number, "k", 0.0, deadline=deadline, item_count=items)
            advance(request, State.QUEUED)
            self._group.push(request)
        times = ExecTime()
        for size in range(1, 20):
            times.observe(size, BASE_S + ITEM_S * size)
        self.waiting = Waiting(0.0, self._group.item_count, limit, times, self._first)

    def _first(self, items: int) -> list[Request]:
        first = self._group.first(items)
        self.shown += len(first)
        return first


def plainly(waiting: Waiting) -> Decision:
    """Return the decision found by trying every size over the whole queue."""
    requests = [r for r in waiting.first(waiting.count) if r.deadline < math.inf]
    largest = min(waiting.count, waiting.limit)
    best, best_rate = Decision(waiting.limit), 0.0
    for size in sorted({*(2**power for power in range(11) if 2**power < largest), largest}):
        took = waiting.exec_time.mean(size)
        late = next((n for n, r in enumerate(requests) if r.deadline >= took), len(requests))
        saved, items = 0, 0
        for request in requests[late:]:
            items += request.item_count
            if items > size:
                break
            saved += request.deadline >= took
        if saved > best_rate * took:
            best, best_rate = Decision(size, late), saved / took
    return best


@given(st.lists(requests, min_size=1, max_size=120), st.sampled_from([1, 2, 7, 8, 32]))
def test_examined_requests_give_same_decision_as_whole_queue(
    drawn: list[tuple[float, int]], limit: int
) -> None:
    """The decision equals that of the whole queue for any mix of deadlines and sizes."""
    waiting = Queue(drawn, limit).waiting
    assert plainly(waiting) == _most_saved(waiting)


def test_only_front_of_long_queue_is_examined() -> None:
    """Only two batches at the front of a queue of a thousand requests are examined."""
    queue = Queue([(0.04 + 0.0001 * number, 1) for number in range(1000)], 32)
    assert plainly(queue.waiting) == _most_saved(queue.waiting)
    queue.shown = 0
    _most_saved(queue.waiting)
    assert queue.shown == 2 * 32
