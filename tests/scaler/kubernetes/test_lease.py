"""The Lease: at most one leader, increasing terms and a quick takeover."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.kubernetes.lease import Candidate, Record, Timing

TIMING = Timing()


class Conflict(Exception):
    """Raised when another client has changed the Lease in the meantime."""


@dataclass
class ApiServer:
    """An API server, which accepts only changes of the latest version."""

    lease: Record | None = None
    changes: int = 0

    def write(self, record: Record) -> Record:
        """Accept a change of the latest version; raise an error for any other."""
        if record.version != (self.lease.version if self.lease else ""):
            raise Conflict
        self.changes += 1
        self.lease = replace(record, version=str(self.changes))
        return self.lease


@dataclass
class Scaler:
    """A candidate with its own clocks and a request that has not yet arrived."""

    name: str
    began_s: float
    behind_ms: int
    candidate: Candidate = field(init=False)
    sent: tuple[Record, float] | None = None

    def __post_init__(self) -> None:
        self.candidate = Candidate(self.name, f"{self.name}:8090", TIMING)

    def clock_s(self, now_s: float) -> float:
        """Return the time of its monotonic clock, which has an arbitrary start."""
        return now_s + self.began_s

    def term(self, now_s: float) -> int:
        """Return the term in which it leads; 0 if it does not lead."""
        return self.candidate.term(self.clock_s(now_s))

    def look(self, server: ApiServer, now_s: float) -> None:
        """Read the Lease and send the change to write, if any."""
        clock_s = self.clock_s(now_s)
        wall_ms = 1_700_000_000_000 + int(now_s * 1000) - self.behind_ms
        record = self.candidate.next(server.lease, clock_s, wall_ms)
        self.sent = (record, clock_s) if record else None

    def arrive(self, server: ApiServer, *, answered: bool = True) -> None:
        """Deliver the sent change to the API server, and its response unless that is lost."""
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
    """Read the Lease and deliver the change at once."""
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
def test_at_most_one_scaler_leads(
    clocks: list[tuple[float, int]], steps: list[tuple[int, str, float]]
) -> None:
    """At most one scaler leads, in increasing terms, despite delays, losses and wrong clocks."""
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


def test_first_candidate_acquires_and_keeps_lease() -> None:
    """The first candidate keeps the Lease as long as it renews it in time."""
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


def test_silent_leader_is_replaced() -> None:
    """A silent leader is replaced in time, with a later term, even by one whose clock is behind."""
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


def test_released_lease_is_acquired_at_once() -> None:
    """After a clean shutdown, another scaler takes the Lease at once."""
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


def test_leader_that_missed_renewal_starts_new_term() -> None:
    """A leader that could not renew starts a new term, as another might have led meanwhile."""
    server = ApiServer()
    scaler = Scaler("a", 0.0, 0)
    turn(scaler, server, 0.0)
    first = scaler.term(0.0)
    assert not scaler.term(TIMING.deadline_s)
    turn(scaler, server, 60.0)
    assert scaler.term(60.0) > first
    assert server.lease is not None
    assert 0 == server.lease.transitions  # it is still the same holder


def test_only_held_lease_is_released() -> None:
    """A candidate releases no Lease before there is one or while another holds it."""
    server = ApiServer()
    first, second = Scaler("a", 0.0, 0), Scaler("b", 0.0, 0)
    assert second.candidate.released(1) is None
    turn(first, server, 0.0)
    turn(second, server, 0.0)
    assert second.candidate.released(1) is None


@pytest.mark.parametrize("timing", [Timing()])
def test_a_leader_stops_before_another_may_begin(timing: Timing) -> None:
    """A leader stops before another may start, with time for several renewals before."""
    assert timing.deadline_s < timing.duration_s
    assert 2 * timing.renew_s < timing.deadline_s


def test_leader_knows_term_of_leader_before() -> None:
    """A leader knows the previous leader's term, its own if it has only lapsed."""
    server, one, two = ApiServer(), Scaler("one", 0.0, 0), Scaler("two", 0.0, 0)
    turn(one, server, 0.0)
    assert 0 == one.candidate.term_before
    first = one.term(1.0)
    turn(one, server, 2.0)
    assert 0 == one.candidate.term_before, "a renewal begins no term"
    turn(one, server, 20.0)
    assert first == one.candidate.term_before
    lapsed = one.term(21.0)
    for now_s in (22.0, 40.0):
        turn(two, server, now_s)
    assert lapsed == two.candidate.term_before
    second = two.term(41.0)
    for now_s in (42.0, 60.0):
        turn(one, server, now_s)
    assert second == one.candidate.term_before
