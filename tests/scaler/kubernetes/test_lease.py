"""The Lease: never two leaders, growing terms, and soon another leader."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.kubernetes.lease import Candidate, Record, Timing

TIMING = Timing()


class Conflict(Exception):
    """Another client has changed the Lease in between."""


@dataclass
class ApiServer:
    """The API server's rule: a change names the version that it changes."""

    lease: Record | None = None
    changes: int = 0

    def write(self, record: Record) -> Record:
        """Take a change of the latest version, and no other."""
        if record.version != (self.lease.version if self.lease else ""):
            raise Conflict
        self.changes += 1
        self.lease = replace(record, version=str(self.changes))
        return self.lease


@dataclass
class Scaler:
    """A candidate with clocks of its own, and what it has sent and is not there yet."""

    name: str
    began_s: float
    behind_ms: int
    candidate: Candidate = field(init=False)
    sent: tuple[Record, float] | None = None

    def __post_init__(self) -> None:
        self.candidate = Candidate(self.name, f"{self.name}:8090", TIMING)

    def clock_s(self, now_s: float) -> float:
        """Its monotonic clock, which begins anywhere."""
        return now_s + self.began_s

    def term(self, now_s: float) -> int:
        """The term in which it leads; 0: it does not."""
        return self.candidate.term(self.clock_s(now_s))

    def look(self, server: ApiServer, now_s: float) -> None:
        """Read, and send what is to be written."""
        clock_s = self.clock_s(now_s)
        wall_ms = 1_700_000_000_000 + int(now_s * 1000) - self.behind_ms
        record = self.candidate.next(server.lease, clock_s, wall_ms)
        self.sent = (record, clock_s) if record else None

    def arrive(self, server: ApiServer, *, answered: bool = True) -> None:
        """What was sent reaches the API server, and its answer reaches us, or is lost."""
        if self.sent is None:
            return
        (record, began_s), self.sent = self.sent, None
        try:
            written = server.write(record)
        except Conflict:
            return
        if answered:
            self.candidate.written(written, began_s)


def turn(scaler: Scaler, server: ApiServer, now_s: float) -> None:
    """A look and what follows from it, in no time."""
    scaler.look(server, now_s)
    scaler.arrive(server)


STEP = st.tuples(
    st.integers(0, 2),
    st.sampled_from(["look", "arrive", "lost answer", "turn", "release"]),
    st.sampled_from([0.0, 0.5, 2.0, 5.0, 11.0]),
)


@given(
    clocks=st.lists(
        st.tuples(st.floats(0, 1e6), st.integers(-(10**7), 10**7)), min_size=3, max_size=3
    ),
    steps=st.lists(STEP, max_size=80),
)
def test_never_do_two_lead(
    clocks: list[tuple[float, int]], steps: list[tuple[int, str, float]]
) -> None:
    """Whatever is slow, lost or wrong about clocks; and each taking has a later term."""
    scalers = [Scaler(name, *clock) for name, clock in zip("abc", clocks, strict=True)]
    server, now_s = ApiServer(), 0.0
    terms = [(0, "")]
    for number, what, pause_s in steps:
        scaler = scalers[number]
        if what == "look":
            scaler.look(server, now_s)
        elif what == "turn":
            turn(scaler, server, now_s)
        elif what == "release":
            record = scaler.candidate.released(1)
            scaler.sent = (record, 0.0) if record else None
            if record:
                scaler.arrive(server, answered=False)
        else:
            scaler.arrive(server, answered=what == "arrive")
        leading = [(each.term(now_s), each.name) for each in scalers if each.term(now_s)]
        assert len(leading) <= 1
        for found in leading:
            if found != terms[-1]:
                assert found[0] > terms[-1][0]
                terms.append(found)
        now_s += pause_s


def test_the_first_takes_it_and_keeps_it() -> None:
    """As long as it renews in time, the other only looks."""
    server = ApiServer()
    first, second = Scaler("a", 0.0, 0), Scaler("b", 500.0, 0)
    terms = set()
    for number in range(20):
        now_s = 2.0 * number
        turn(first, server, now_s)
        turn(second, server, now_s)
        terms.add(first.term(now_s))
        assert not second.term(now_s)
    assert 1 == len(terms)
    assert server.lease is not None
    assert ("a", 0) == (server.lease.holder, server.lease.transitions)


def test_another_takes_over_when_the_leader_is_silent() -> None:
    """Within the duration and one look, with a later term, though its clock is an hour behind."""
    server = ApiServer()
    first, second = Scaler("a", 0.0, 0), Scaler("b", 500.0, 3_600_000)
    turn(first, server, 0.0)
    before = first.term(0.0)
    now_s = 0.0
    while not second.term(now_s):
        now_s += TIMING.renew_s
        turn(second, server, now_s)
    assert now_s <= TIMING.duration_s + 2 * TIMING.renew_s
    assert not first.term(now_s)
    assert second.term(now_s) == before + 1
    assert server.lease is not None
    assert 1 == server.lease.transitions


def test_a_lease_that_was_given_back_is_taken_at_once() -> None:
    """A scaler that shuts down cleanly keeps no other waiting."""
    server = ApiServer()
    first, second = Scaler("a", 0.0, 0), Scaler("b", 0.0, 0)
    turn(first, server, 0.0)
    turn(second, server, 0.0)
    record = first.candidate.released(5)
    assert record is not None
    assert not first.term(0.0)
    server.write(record)
    turn(second, server, 2.0)
    assert second.term(2.0)


def test_a_leader_that_could_not_renew_begins_a_new_term() -> None:
    """In between another might have led, for all it knows."""
    server = ApiServer()
    scaler = Scaler("a", 0.0, 0)
    turn(scaler, server, 0.0)
    first = scaler.term(0.0)
    assert not scaler.term(TIMING.deadline_s)
    turn(scaler, server, 60.0)
    assert scaler.term(60.0) > first
    assert server.lease is not None
    assert 0 == server.lease.transitions  # it is still the same holder


def test_what_is_not_held_is_not_given_back() -> None:
    """Neither before there is a Lease, nor when it is another's."""
    server = ApiServer()
    first, second = Scaler("a", 0.0, 0), Scaler("b", 0.0, 0)
    assert second.candidate.released(1) is None
    turn(first, server, 0.0)
    turn(second, server, 0.0)
    assert second.candidate.released(1) is None


@pytest.mark.parametrize("timing", [Timing()])
def test_a_leader_stops_before_another_may_begin(timing: Timing) -> None:
    """And has time for several renewals before."""
    assert timing.deadline_s < timing.duration_s
    assert 2 * timing.renew_s < timing.deadline_s
