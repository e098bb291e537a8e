"""A second count of requests, compared over time with that of the sidecars."""

from __future__ import annotations

import pytest

from scaler.control.disagreements import CountCheck


def minutes(theirs: float, ours: float, until_s: int = 120) -> CountCheck:
    """Return a check after two minutes at these rates."""
    recount = CountCheck("the gateway")
    for now_s in range(until_s + 1):
        recount.note(10 + now_s * theirs, int(now_s * ours), float(now_s))
    return recount


@pytest.mark.parametrize(("theirs", "ours"), [(50, 50), (52, 50), (0.2, 0.3), (0, 0)])
def test_small_differences_give_no_warning(theirs: float, ours: float) -> None:
    """Differences of a tenth or of a few requests give no warning."""
    assert [] == minutes(theirs, ours).warnings(120.0)


def test_warnings_distinguish_higher_and_lower_counts() -> None:
    """The warnings for a higher and a lower second count differ."""
    assert (
        "counts 80/s where the sidecars count 50/s: reports" in minutes(80, 50).warnings(120.0)[0]
    )
    assert "counts 50/s where the sidecars count 80/s: some" in minutes(50, 80).warnings(120.0)[0]


@pytest.mark.parametrize("lag_s", [5.0, 15.0])
def test_lagging_count_gives_no_warning(lag_s: float) -> None:
    """A count that lags behind while a load begins or ends gives no warning."""
    recount = CountCheck("Prometheus")
    for now_s in range(400):
        ours, theirs = (max(0.0, min(at_s, 200.0) - 100.0) for at_s in (now_s, now_s - lag_s))
        recount.note(7 + 90 * theirs, int(90 * ours), float(now_s))
        assert [] == recount.warnings(float(now_s)), now_s


def test_no_warning_before_minimum_time() -> None:
    """There is no warning before counts of at least half a minute."""
    assert [] == minutes(80, 50, until_s=40).warnings(40.0)
    assert [] != minutes(80, 50, until_s=60).warnings(60.0)


def test_restarted_count_gives_no_warning() -> None:
    """A count that restarts from 0, as after a restart of the gateway, gives no warning."""
    recount = minutes(50, 50)
    for second in range(40):
        recount.note(second * 50.0, 6000 + second * 50, 121.0 + second)
        assert [] == recount.warnings(121.0 + second)


def test_source_that_never_counts_function_gives_no_warning() -> None:
    """A source that never counts a function gives no warning, as Go omits a count of 0."""
    recount = CountCheck("the gateway")
    for now_s in range(120):
        recount.note(0.0, now_s * 50, float(now_s))
    assert [] == recount.warnings(120.0)


@pytest.mark.parametrize("every_s", [5, 15, 60])
@pytest.mark.parametrize("phase_s", [0.0, 3.0, 7.0])
def test_rarely_read_counts_are_compared_at_reading_time(every_s: int, phase_s: float) -> None:
    """Counts read as rarely as once a minute are compared as of the time of their reading.

    Prometheus scrapes once a minute by default, and loads come and go in between.
    """
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


def test_missing_count_is_reported_while_requests_arrive() -> None:
    """A missing second count is reported, but not while the function has no requests."""
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


def test_stale_reading_counts_as_missing() -> None:
    """A stale reading counts as missing, as Prometheus keeps answering with its last one."""
    recount = CountCheck("Prometheus")
    for now_s in range(0, 500, 5):
        read_s = min(now_s, 200)
        recount.note(read_s * 5.0, now_s * 5, float(now_s), float(now_s - read_s))
        assert (now_s >= 365) is bool(recount.warnings(float(now_s))), now_s
    assert "has no count" in recount.warnings(500.0)[0]


def test_disagreement_ends_when_source_is_silent() -> None:
    """A disagreement ends when the source is silent for long, which is reported separately."""
    recount = minutes(50, 80)
    assert [] != recount.warnings(130.0)
    assert [] == recount.warnings(500.0)
