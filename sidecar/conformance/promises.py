"""The promises that a sidecar keeps under any batch policy, and the check of them after a drive.

The batcher keeps most of them by itself, whatever a policy decides. They are checked all the same,
because a policy is Python code and can change objects that it should not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from carpool.policy_errors import Broken
from sidecar.core.request import TERMINAL, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sidecar.core.request import Request
    from sidecar.testing import BatchRun, End

__all__ = ["BOUNDED", "FORGETS", "LEAVES", "ONE_END", "PROMISES", "READS", "SAME", "SANE"]
__all__ += ["check_drive"]

SANE = "it raises no exceptions, and returns times and whole numbers of items"
READS = "it changes no request"
ONE_END = "every request ends exactly once"
SIZES = "no batch is larger than allowed, or mixes keys"
DEADLINES = "no request is sent after its deadline"
ORDER = "first in, first out within a class and key"
LEAVES = "a request without a deadline leaves in bounded time, even if it is alone"
SAME = "two instances of it behave the same"
FORGETS = "it holds no reference to a request that has ended"
BOUNDED = "its memory does not grow with the requests"
PROMISES = (SANE, READS, ONE_END, SIZES, DEADLINES, ORDER, LEAVES, SAME, FORGETS, BOUNDED)


def check_drive(
    arrived: int,
    ends: Sequence[End],
    batches: Sequence[BatchRun],
    batch_max: int,
    wait_max_s: float,
) -> None:
    """Check the result of a drive.

    Args:
        arrived: number of requests that arrived.
        ends: how each request ended.
        batches: every batch that ran.
        batch_max: largest batch allowed.
        wait_max_s: longest time that a request may wait while an instance is idle.

    Raises:
        Broken: the first promise found not to hold.
    """
    _check_ends(arrived, ends)
    requests = {end.request.id: end.request for end in ends}
    for ran in batches:
        _check_batch(ran, [requests[number] for number in ran.ids], batch_max)
    _check_order(batches, requests)
    _check_waits(batches, ends, wait_max_s)


def _check_ends(arrived: int, ends: Sequence[End]) -> None:
    ended = Counter(end.request.id for end in ends)
    twice = [number for number, times in ended.items() if times > 1]
    if twice or len(ended) != arrived:
        seen = f"{arrived} requests arrived, {len(ended)} ended, and these ended twice: {twice}"
        raise Broken(ONE_END, seen)
    for end in ends:
        if end.state not in TERMINAL or end.state is not end.request.state:
            raise Broken(ONE_END, f"{end.request} was reported as {end.state.value}")


def _check_batch(ran: BatchRun, requests: list[Request], batch_max: int) -> None:
    items = sum(request.item_count for request in requests)
    if len(requests) > 1 and items > batch_max:
        raise Broken(SIZES, f"a batch of {items} items left, at most {batch_max} are allowed")
    if len({request.key for request in requests}) > 1:
        raise Broken(SIZES, f"a batch with several keys left: {requests}")
    for request in requests:
        if request.deadline <= ran.at:
            late_s = ran.at - request.deadline
            raise Broken(DEADLINES, f"{request} was sent {late_s:g} s after its deadline")


def _check_order(batches: Sequence[BatchRun], requests: dict[int, Request]) -> None:
    latest: dict[object, int] = defaultdict(int)
    for ran in batches:
        if ran.closed == "isolation":
            continue  # parts of a failed batch go again, before requests that came in between
        for number in ran.ids:
            key = (requests[number].key, requests[number].background)
            if number < latest[key]:
                raise Broken(ORDER, f"{requests[number]} left after request {latest[key]}")
            latest[key] = number


def _check_waits(batches: Sequence[BatchRun], ends: Iterable[End], wait_max_s: float) -> None:
    left: dict[int, float] = {}
    for ran in batches:
        for number in ran.ids:
            left.setdefault(number, ran.at)
    busy_s = sum(ran.until - ran.at for ran in batches)
    for request, state, at in ends:
        if state in (State.REFUSED, State.CANCELLED) or request.deadline <= at:
            continue
        waited_s = left.get(request.id, at) - request.arrived
        if waited_s > wait_max_s + busy_s:
            raise Broken(LEAVES, f"{request} left after {waited_s:g} s, nearly all of them idle")
