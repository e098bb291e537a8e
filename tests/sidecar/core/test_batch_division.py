"""One bad request among good ones, in simulated time."""

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
    """A function that breaks on the requests with these numbers."""
    function = ScriptedFunction(lambda _: EXEC_S, breaks=lambda r: r.id in bad, fault=fault)
    return Drive(Deadline(Deadline.Params()), function)


def fates(ends: list[End]) -> dict[int, State]:
    """How each request ended."""
    return {end.request.id: end.state for end in ends}


@pytest.mark.parametrize("fault", [Fault.ANSWERED, Fault.DIED])
@pytest.mark.parametrize("size", [2, 3, 16, 32])
def test_only_the_offender_fails(size: int, fault: Fault) -> None:
    """Wherever it sits, its neighbours are answered and it alone is not."""
    for bad in {1, size // 2, size}:
        ends = fates(poisoned(bad, fault=fault).run([Arrival(0.0)] * size))
        assert {bad} == {number for number, state in ends.items() if state is State.FAILED}
        assert size - 1 == sum(state is State.DONE for state in ends.values())


def test_halving_takes_a_logarithm_of_batches() -> None:
    """Thirty-two requests, one offender: the batch, and two for each of five halvings."""
    drive = poisoned(7)
    drive.run([Arrival(0.0)] * 32)
    assert 1 + 2 * 5 == len(drive.batches)
    assert {"isolation"} == {ran.closed for ran in drive.batches[1:]}


def test_a_deadly_batch_is_taken_apart_at_once() -> None:
    """Every death costs a restart: four more, instead of one for each halving and then those."""
    drive = poisoned(7, fault=Fault.DIED)
    drive.run([Arrival(0.0)] * 32)
    assert [32] + [1] * (31 + 4) == [ran.size for ran in drive.batches]
    assert 1 + 4 == sum(7 in ran.ids for ran in drive.batches)


def test_only_the_fourth_death_with_it_alone_is_held_against_a_request() -> None:
    """Instances are killed for other reasons too, and sometimes the next one as well."""
    batcher = eager()
    batch = sent(batcher, request(1, "x"))
    for deaths in (1, 2, 3):
        assert [] == batcher.broken(batch, Fault.DIED, 0.0)
        (batch,) = batcher.step(0.0).send
        assert deaths == batch.deaths
    assert batch.requests == batcher.broken(batch, Fault.DIED, 0.0)


def test_the_death_of_a_larger_batch_is_held_against_none() -> None:
    """After the death of its batch a request has all its chances alone, and is answered."""
    batcher = eager()
    batch = sent(batcher, request(1, "x"), request(2, "y"))
    batcher.cancel(batch.requests[0])
    for _ in range(4):
        assert [] == batcher.broken(batch, Fault.DIED, 0.0)
        (batch,) = batcher.step(0.0).send
    assert batch.requests == batcher.finished(batch, [False], 0.0)


@pytest.mark.parametrize("unsent", [0, 1, 2, 3, 4])
def test_an_attempt_that_reached_no_instance_is_no_death(unsent: int) -> None:
    """However often the instance was not there before: one death is not the request's fault yet."""
    batcher = eager()
    batch = sent(batcher, request(1, "x"))
    for fault in (*[Fault.UNSENT] * unsent, *[Fault.DIED] * 3):
        assert [] == batcher.broken(batch, fault, 0.0)
        (batch,) = batcher.step(0.0).send
    assert batch.requests == batcher.broken(batch, Fault.DIED, 0.0)


def test_a_known_offender_gets_no_second_chance() -> None:
    """It has had them: one restart for each time that it comes again."""
    batcher = eager()
    batcher.broken(sent(batcher, request(1, "bad")), Fault.ANSWERED, 0.0)
    known = request(2, "bad")
    assert [known] == batcher.broken(sent(batcher, known), Fault.DIED, 0.0)


@pytest.mark.parametrize("second", ["bad too", "left"])
def test_offenders_that_meet_do_not_make_a_broken_function(second: str) -> None:
    """Two of two fail, or the only one left: the next batch is divided all the same."""
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
    """They do not hide behind each other."""
    ends = fates(poisoned(3, 29).run([Arrival(0.0)] * 32))
    assert {3, 29} == {number for number, state in ends.items() if state is State.FAILED}


def test_none_is_sent_again_after_its_deadline() -> None:
    """Isolation ends where the members' time ends: expired, not answered late."""
    drive = poisoned(16)
    ends = drive.run([Arrival(0.0, 3.5 * EXEC_S)] * 16)
    assert {State.DONE, State.EXPIRED} == {end.state for end in ends}
    assert all(ran.at < 3.5 * EXEC_S for ran in drive.batches)


def sent(batcher: Batcher, *requests: Request, now: float = 0.0) -> Batch:
    """Admit ``requests`` and let them leave together."""
    for request in requests:
        batcher.admit(request, now)
    (batch,) = batcher.step(now).send
    assert list(requests) == batch.requests
    return batch


def eager() -> Batcher:
    """A batcher that recognises requests by their key."""
    batcher = Batcher(
        Deadline(Deadline.Params()), batch_max=32, queue_max=99, fingerprint=lambda r: r.payload
    )
    batcher.upstreams.add(Upstream("a", 32, up=True))
    return batcher


def request(number: int, word: str = "", deadline: float = math.inf) -> Request:
    """A request that is recognised by ``word``."""
    return Request(number, "k", 0.0, payload=word, deadline=deadline)


def test_a_quarantined_offender_is_sent_alone_for_a_while() -> None:
    """Found once, it harms no other request the next time; later it is given another chance."""
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


def test_a_batch_that_was_never_sent_is_sent_again_whole_and_none_is_blamed() -> None:
    """The instance was not there: the same members leave again, five times at most."""
    batcher = eager()
    batch = sent(batcher, request(1, "x"), request(2, "y"))
    for attempt in (2, 3, 4, 5):
        assert [] == batcher.broken(batch, Fault.UNSENT, 0.0)
        (batch,) = batcher.step(0.0).send
        assert (attempt, 2) == (batch.attempt, len(batch.requests))
    assert 2 == len(batcher.broken(batch, Fault.UNSENT, 0.0))
    sent(batcher, request(3, "x"), request(4, "y"))


def test_a_broken_function_is_not_hammered() -> None:
    """Where all fail alone too, later batches fail whole instead of in 2n pieces."""
    drive = Drive(
        Deadline(Deadline.Params()), ScriptedFunction(lambda _: EXEC_S, breaks=lambda _: True)
    )
    drive.run([Arrival(0.0)] * 32)
    assert 63 == len(drive.batches)
    drive.batches.clear()
    drive.run([Arrival(1.0)] * 32)
    assert 1 == len(drive.batches)


def test_a_broken_function_is_not_hammered_in_small_batches_either() -> None:
    """Eight failures alone in a row and no answer: the third batch of four fails whole."""
    drive = Drive(
        Deadline(Deadline.Params()),
        ScriptedFunction(lambda _: EXEC_S, breaks=lambda _: True),
        batch_max=4,
    )
    for second, batches in enumerate((7, 7, 1)):
        drive.batches.clear()
        drive.run([Arrival(float(second))] * 4)
        assert batches == len(drive.batches)


def test_offenders_between_answers_do_not_make_a_broken_function() -> None:
    """Three of four fail, again and again: the fourth is answered every time."""
    bad = {number for number in range(1, 41) if number % 4}
    drive = Drive(
        Deadline(Deadline.Params()),
        ScriptedFunction(lambda _: EXEC_S, breaks=lambda r: r.id in bad),
        batch_max=4,
    )
    for second in range(9):
        drive.run([Arrival(float(second))] * 4)
    ends = fates(drive.run([Arrival(9.0)] * 4))
    assert bad == {number for number, state in ends.items() if state is State.FAILED}


def test_a_request_cancelled_between_two_attempts_is_not_sent() -> None:
    """A request is cancelled while its half waits: the others go without it."""
    batcher = eager()
    requests = [request(number, str(number)) for number in range(4)]
    batcher.broken(sent(batcher, *requests), Fault.ANSWERED, 0.0)
    batcher.cancel(requests[0])
    (half,) = batcher.step(0.0).send
    assert [requests[1]] == half.requests


def test_the_last_that_waits_is_tried_alone_before_it_is_blamed() -> None:
    """The offender's caller left while the batch broke: its neighbour still gets an answer."""
    batcher = eager()
    offender, neighbour = request(1, "bad"), request(2, "good")
    batch = sent(batcher, offender, neighbour)
    batcher.cancel(offender)
    assert [] == batcher.broken(batch, Fault.ANSWERED, 0.0)
    (alone,) = batcher.step(0.0).send
    assert [neighbour] == batcher.finished(alone, [False], 0.1)


def test_an_isolation_that_has_begun_is_brought_to_its_end() -> None:
    """Most fail alone, but not all: those few are answered although dividing is suspended."""
    ends = fates(poisoned(*range(1, 27)).run([Arrival(0.0)] * 32))
    assert set(range(27, 33)) == {n for n, state in ends.items() if state is State.DONE}


def test_giving_up_includes_the_divided() -> None:
    """A function that does not come back fails those between two attempts as well."""
    batcher = eager()
    requests = [request(1, "a"), request(2, "b")]
    batcher.broken(sent(batcher, *requests), Fault.DIED, 0.0)
    assert ([], requests) == batcher.give_up()
    assert batcher.idle


def test_offenders_that_are_answered_count_as_such() -> None:
    """Many errors in answer to one request each are a broken function, too."""
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
