"""A second count of requests: held against the sidecars' own, with patience."""

from __future__ import annotations

import pytest

from scaler.control.count_check import CountCheck


def minutes(theirs: float, ours: float, until_s: int = 120) -> CountCheck:
    """Two minutes at these rates."""
    recount = CountCheck("the gateway")
    for now_s in range(until_s + 1):
        recount.note(10 + now_s * theirs, int(now_s * ours), float(now_s))
    return recount


@pytest.mark.parametrize(("theirs", "ours"), [(50, 50), (52, 50), (0.2, 0.3), (0, 0)])
def test_what_chance_and_edges_explain_is_no_disagreement(theirs: float, ours: float) -> None:
    """A tenth, or a few requests, more or less."""
    assert [] == minutes(theirs, ours).warnings(120.0)


def test_more_and_fewer_are_told_apart() -> None:
    """A count above that of the sidecars knows of some that do not report here."""
    assert (
        "counts 80/s where the sidecars count 50/s: reports" in minutes(80, 50).warnings(120.0)[0]
    )
    assert "counts 50/s where the sidecars count 80/s: some" in minutes(50, 80).warnings(120.0)[0]


@pytest.mark.parametrize("lag_s", [5.0, 15.0])
def test_a_source_that_is_late_is_not_wrong(lag_s: float) -> None:
    """While a load begins or ends, Prometheus is behind by as long as it takes to ask."""
    recount = CountCheck("Prometheus")
    for now_s in range(400):
        ours, theirs = (max(0.0, min(at_s, 200.0) - 100.0) for at_s in (now_s, now_s - lag_s))
        recount.note(7 + 90 * theirs, int(90 * ours), float(now_s))
        assert [] == recount.warnings(float(now_s)), now_s


def test_nothing_is_said_at_once() -> None:
    """Half a minute at the least has to have been counted."""
    assert [] == minutes(80, 50, until_s=40).warnings(40.0)
    assert [] != minutes(80, 50, until_s=60).warnings(60.0)


def test_who_starts_anew_is_not_compared_with_before() -> None:
    """A gateway that was restarted counts from none."""
    recount = minutes(50, 50)
    for second in range(40):
        recount.note(second * 50.0, 6000 + second * 50, 121.0 + second)
        assert [] == recount.warnings(121.0 + second)


def test_who_does_not_count_a_function_is_no_source() -> None:
    """Go leaves a count of none out."""
    recount = CountCheck("the gateway")
    for now_s in range(120):
        recount.note(0.0, now_s * 50, float(now_s))
    assert [] == recount.warnings(120.0)


@pytest.mark.parametrize("every_s", [5, 15, 60])
@pytest.mark.parametrize("phase_s", [0.0, 3.0, 7.0])
def test_what_is_read_seldom_is_compared_at_the_time_it_was_read(
    every_s: int, phase_s: float
) -> None:
    """Prometheus scrapes once a minute by default; loads come and go in between."""
    recount, asked = CountCheck("Prometheus"), range(0, 900, 5)

    def came(at_s: float) -> float:
        return sum(90.0 * min(20.0, max(0.0, at_s - start)) for start in range(50, 800, 70))

    for now_s in asked:
        age_s = (now_s + phase_s) % every_s
        recount.note(7 + came(now_s - age_s), int(came(now_s - 1.0)), float(now_s), age_s)
        assert [] == recount.warnings(float(now_s)), now_s
    for now_s in range(900, 1100, 5):
        age_s = (now_s + phase_s) % every_s
        ours = came(900) + 90.0 * (now_s - 900)
        recount.note(7 + came(900) + 45.0 * (now_s - age_s - 900), int(ours), float(now_s), age_s)
    said = recount.warnings(1100.0)
    assert "Prometheus counts 45/s where the sidecars count 90/s: some callers" in said[0]


def test_a_count_that_is_gone_is_missed_if_there_is_something_to_count() -> None:
    """The second count is not read any more, or never was; a function at rest is no reason."""
    recount = CountCheck("Prometheus")
    for now_s in range(0, 60, 5):
        recount.note(now_s * 5.0, now_s * 5, float(now_s))
    for now_s in range(60, 160, 5):
        recount.note(None, 300, float(now_s))
        assert [] == recount.warnings(float(now_s))
    for now_s in range(160, 200, 5):
        recount.note(None, 300 + 5 * (now_s - 155), float(now_s))
    assert ["Prometheus has no count of its requests"] == [
        said.partition(":")[0] for said in recount.warnings(200.0)
    ]
    recount.note(1200.0, 520, 205.0)
    assert [] == recount.warnings(205.0)


def test_a_count_that_is_not_read_any_more_is_none() -> None:
    """Prometheus goes on answering with its last reading; it is missed when it is stale."""
    recount = CountCheck("Prometheus")
    for now_s in range(0, 500, 5):
        read_s = min(now_s, 200)
        recount.note(read_s * 5.0, now_s * 5, float(now_s), float(now_s - read_s))
        assert (now_s >= 365) is bool(recount.warnings(float(now_s))), now_s
    assert "has no count" in recount.warnings(500.0)[0]


def test_what_was_counted_long_ago_says_nothing_of_now() -> None:
    """A source that cannot be asked any more has no disagreement; that it cannot is told apart."""
    recount = minutes(50, 80)
    assert [] != recount.warnings(130.0)
    assert [] == recount.warnings(500.0)
