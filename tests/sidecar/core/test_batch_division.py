"""Isolation of a bad request among good ones, in simulated time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from sidecar.core.batch import Fault
from sidecar.core.batch_division import QUARANTINE_S
from sidecar.core.batcher import Batcher
from sidecar.core.dispatch import Upstream
from sidecar.core.request import Request, State
from sidecar.policies.deadline import Deadline
from sidecar.testing import Arrival, Drive, End, ScriptedFunction

if TYPE_CHECKING:
    from sidecar.core.batch import Batch

EXEC_S = 0.010


def poisoned(*bad: int, fault: Fault = Fault.ANSWERED) -> Drive:
    """Return a simulation whose function breaks on the requests with these numbers."""
    function = ScriptedFunction(lambda _: EXEC_S, breaks=lambda r: r.id in bad, fault=fault)
    return Drive(Deadline(Deadline.Params()), function)


def outcomes(ends: list[End]) -> dict[int, State]:
    """Return the final state of each request."""
    return {end.request.id: end.state for end in ends}


@pytest.mark.parametrize("fault", [Fault.ANSWERED, Fault.DIED])
@pytest.mark.parametrize("size", [2, 3, 16, 32])
def test_only_the_offender_fails(size: int, fault: Fault) -> None:
    """Only the offender fails, whatever its position; the other requests are answered."""
    for bad in {1, size // 2, size}:
        ends = outcomes(poisoned(bad, fault=fault).run([Arrival(0.0)] * size))
        assert {bad} == {number for number, state in ends.items() if state is State.FAILED}
        assert size - 1 == sum(state is State.DONE for state in ends.values())


def test_halving_isolates_offender_in_logarithmic_batches() -> None:
    """One offender among 32 takes the batch itself and two more for each of five halvings."""
    drive = poisoned(7)
    drive.run([Arrival(0.0)] * 32)
    assert 1 + 2 * 5 == len(drive.batches)
    assert {"isolation"} == {ran.closed for ran in drive.batches[1:]}


def test_batch_that_kills_instance_is_split_into_single_requests() -> None:
    """A batch that killed the instance is split into single requests, to save restarts."""
    drive = poisoned(7, fault=Fault.DIED)
    drive.run([Arrival(0.0)] * 32)
    assert [32] + [1] * (31 + 4) == [ran.size for ran in drive.batches]
    assert 1 + 4 == sum(7 in ran.ids for ran in drive.batches)


def test_request_fails_at_fourth_instance_death_when_sent_alone() -> None:
    """A request fails only at its fourth death alone, as instances also die for other reasons."""
    batcher = eager()
    batch = sent(batcher, request(1, "x"))
    for deaths in (1, 2, 3):
        assert [] == batcher.broken(batch, Fault.DIED, 0.0)
        (batch,) = batcher.step(0.0).send
        assert deaths == batch.deaths
    assert batch.requests == batcher.broken(batch, Fault.DIED, 0.0)


def test_instance_death_under_larger_batch_uses_up_no_attempts() -> None:
    """After the death of its batch, a request still has all its attempts alone."""
    batcher = eager()
    batch = sent(batcher, request(1, "x"), request(2, "y"))
    batcher.cancel(batch.requests[0])
    for _ in range(4):
        assert [] == batcher.broken(batch, Fault.DIED, 0.0)
        (batch,) = batcher.step(0.0).send
    assert batch.requests == batcher.finished(batch, [False], 0.0)


@pytest.mark.parametrize("unsent", [0, 1, 2, 3, 4])
def test_attempt_that_reached_no_instance_does_not_count_as_death(unsent: int) -> None:
    """Attempts that reached no instance do not count as deaths, however many they are."""
    batcher = eager()
    batch = sent(batcher, request(1, "x"))
    for fault in (*[Fault.UNSENT] * unsent, *[Fault.DIED] * 3):
        assert [] == batcher.broken(batch, fault, 0.0)
        (batch,) = batcher.step(0.0).send
    assert batch.requests == batcher.broken(batch, Fault.DIED, 0.0)


@pytest.mark.parametrize(("deaths", "blamed"), [(1, False), (3, False), (4, True)])
def test_request_whose_caller_left_is_blamed_for_fourth_death_only(
    deaths: int, *, blamed: bool
) -> None:
    """A caller that leaves as the instance dies makes no offender of requests like its own."""
    batcher = eager()
    left, again = request(1, "x"), request(2, "x")
    batch = sent(batcher, left)
    for _ in range(deaths - 1):
        assert [] == batcher.broken(batch, Fault.DIED, 0.0)
        (batch,) = batcher.step(0.0).send
    batcher.cancel(left)
    assert [] == batcher.broken(batch, Fault.DIED, 0.0)
    assert ([again] if blamed else []) == batcher.broken(sent(batcher, again), Fault.DIED, 1.0)
    assert ([] if blamed else [[again]]) == [b.requests for b in batcher.step(1.0).send]


def test_known_offender_fails_at_first_instance_death() -> None:
    """A known offender fails at its first death, so it costs one restart each time it returns."""
    batcher = eager()
    batcher.broken(sent(batcher, request(1, "bad")), Fault.ANSWERED, 0.0)
    known = request(2, "bad")
    assert [known] == batcher.broken(sent(batcher, known), Fault.DIED, 0.0)


@pytest.mark.parametrize("second", ["bad too", "left"])
def test_all_offender_batch_does_not_mark_function_broken(second: str) -> None:
    """When all the remaining requests of a batch fail, the next batch is still divided."""
    batcher = eager()
    pair = [request(1, "bad"), request(2, second)]
    batch = sent(batcher, *pair)
    if second == "left":
        batcher.cancel(pair[1])
    batcher.broken(batch, Fault.ANSWERED, 0.0)
    while alone := batcher.step(0.0).send:
        batcher.broken(alone[0], Fault.ANSWERED, 0.0)
    batch = sent(batcher, request(3, "good"), request(4, "good"))
    assert [] == batcher.broken(batch, Fault.ANSWERED, 1.0)


def test_two_offenders_are_both_found() -> None:
    """Both offenders in one batch are found."""
    ends = outcomes(poisoned(3, 29).run([Arrival(0.0)] * 32))
    assert {3, 29} == {number for number, state in ends.items() if state is State.FAILED}


def test_expired_requests_are_not_retried_during_isolation() -> None:
    """Isolation stops at the requests' deadlines: they expire instead of being answered late."""
    drive = poisoned(16)
    ends = drive.run([Arrival(0.0, 3.5 * EXEC_S)] * 16)
    assert {State.DONE, State.EXPIRED} == {end.state for end in ends}
    assert all(ran.at < 3.5 * EXEC_S for ran in drive.batches)


def sent(batcher: Batcher, *requests: Request, now: float = 0.0) -> Batch:
    """Admit ``requests`` and send them as one batch."""
    for request in requests:
        batcher.admit(request, now)
    (batch,) = batcher.step(now).send
    assert list(requests) == batch.requests
    return batch


def eager() -> Batcher:
    """Return a batcher that recognizes requests by their payload."""
    batcher = Batcher(
        Deadline(Deadline.Params()), batch_max=32, queue_max=99, fingerprint=lambda r: r.payload
    )
    batcher.upstreams.add(Upstream("a", 32, up=True))
    return batcher


def request(number: int, word: str = "", deadline: float = math.inf) -> Request:
    """Return a request that is recognized by ``word``."""
    return Request(number, "k", 0.0, payload=word, deadline=deadline)


def test_offender_is_sent_alone_until_quarantine_ends() -> None:
    """A known offender is sent alone until its quarantine ends."""
    batcher = eager()
    batcher.broken(sent(batcher, request(1, "bad")), Fault.ANSWERED, 0.0)
    again, good = request(2, "bad"), request(3, "good")
    for each in (again, good):
        batcher.admit(each, 1.0)
    (first,) = batcher.step(1.0).send
    assert [again] == first.requests
    batcher.finished(first, [False], 1.1)
    (second,) = batcher.step(1.1).send
    batcher.finished(second, [False], 1.2)
    later = QUARANTINE_S + 1.0
    sent(batcher, request(4, "bad"), request(5, "good"), now=later)


def test_unsent_batch_is_retried_whole_without_blame() -> None:
    """A batch that reached no instance is sent again whole, up to five times."""
    batcher = eager()
    batch = sent(batcher, request(1, "x"), request(2, "y"))
    for attempt in (2, 3, 4, 5):
        assert [] == batcher.broken(batch, Fault.UNSENT, 0.0)
        (batch,) = batcher.step(0.0).send
        assert (attempt, 2) == (batch.attempt, len(batch.requests))
    assert 2 == len(batcher.broken(batch, Fault.UNSENT, 0.0))
    sent(batcher, request(3, "x"), request(4, "y"))


def test_batches_of_broken_function_fail_without_division() -> None:
    """When all requests fail alone too, later batches fail whole instead of in 2n pieces."""
    drive = Drive(
        Deadline(Deadline.Params()), ScriptedFunction(lambda _: EXEC_S, breaks=lambda _: True)
    )
    drive.run([Arrival(0.0)] * 32)
    assert 63 == len(drive.batches)
    drive.batches.clear()
    drive.run([Arrival(1.0)] * 32)
    assert 1 == len(drive.batches)


def test_small_batches_of_broken_function_fail_without_division() -> None:
    """After eight single failures in a row, the third batch of four fails whole."""
    drive = Drive(
        Deadline(Deadline.Params()),
        ScriptedFunction(lambda _: EXEC_S, breaks=lambda _: True),
        batch_max=4,
    )
    for second, batches in enumerate((7, 7, 1)):
        drive.batches.clear()
        drive.run([Arrival(float(second))] * 4)
        assert batches == len(drive.batches)


def test_offenders_among_successes_do_not_mark_function_broken() -> None:
    """Where three of four requests keep failing, the fourth is answered every time."""
    bad = {number for number in range(1, 41) if number % 4}
    drive = Drive(
        Deadline(Deadline.Params()),
        ScriptedFunction(lambda _: EXEC_S, breaks=lambda r: r.id in bad),
        batch_max=4,
    )
    for second in range(9):
        drive.run([Arrival(float(second))] * 4)
    ends = outcomes(drive.run([Arrival(9.0)] * 4))
    assert bad == {number for number, state in ends.items() if state is State.FAILED}


def test_a_request_cancelled_between_two_attempts_is_not_sent() -> None:
    """A request that is cancelled while its half waits is left out of the next attempt."""
    batcher = eager()
    requests = [request(number, str(number)) for number in range(4)]
    batcher.broken(sent(batcher, *requests), Fault.ANSWERED, 0.0)
    batcher.cancel(requests[0])
    (half,) = batcher.step(0.0).send
    assert [requests[1]] == half.requests


def test_last_remaining_request_is_tried_alone_before_it_fails() -> None:
    """The last request of a broken batch is answered if the offender was the cancelled one."""
    batcher = eager()
    offender, neighbour = request(1, "bad"), request(2, "good")
    batch = sent(batcher, offender, neighbour)
    batcher.cancel(offender)
    assert [] == batcher.broken(batch, Fault.ANSWERED, 0.0)
    (alone,) = batcher.step(0.0).send
    assert [neighbour] == batcher.finished(alone, [False], 0.1)


def test_isolation_in_progress_finishes_while_division_is_suspended() -> None:
    """An isolation in progress answers its good requests although further division is suspended."""
    ends = outcomes(poisoned(*range(1, 27)).run([Arrival(0.0)] * 32))
    assert set(range(27, 33)) == {n for n, state in ends.items() if state is State.DONE}


def test_give_up_fails_requests_of_divided_batches() -> None:
    """Giving up also fails the requests that wait between two attempts."""
    batcher = eager()
    requests = [request(1, "a"), request(2, "b")]
    batcher.broken(sent(batcher, *requests), Fault.DIED, 0.0)
    assert ([], requests) == batcher.give_up()
    assert batcher.idle


def test_error_responses_to_single_requests_mark_function_broken() -> None:
    """Many error responses to single requests also mark the function as broken."""
    batcher = eager()
    batch = sent(batcher, *(request(n, f"bad {n}") for n in range(8)))
    batcher.broken(batch, Fault.ANSWERED, 0.0)
    while retry := batcher.step(0.0).send:
        if len(retry[0].requests) > 1:
            batcher.broken(retry[0], Fault.ANSWERED, 0.0)
        else:
            batcher.finished(retry[0], [False], 0.0, offends=True)
    pair = request(10, "good"), request(11, "good")
    assert [*pair] == batcher.broken(sent(batcher, *pair), Fault.ANSWERED, 1.0)
