"""When arrivals are more than what was reported lets expect."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.load import Load
from sidecar.core.surge import SurgeDetector


def poisson(rate_rps: float, from_s: float, until_s: float, seed: int = 1) -> list[float]:
    """Arrivals at random."""
    rng = np.random.default_rng(seed)
    count = rng.poisson(rate_rps * (until_s - from_s))
    return sorted(rng.uniform(from_s, until_s, count).tolist())


def reporting(rate_rps: float, seed: int = 1) -> SurgeDetector:
    """A detector after reports of a rate, twice a second for half a minute."""
    surge = SurgeDetector(0.0)
    for number in range(60):
        for at_s in poisson(rate_rps, number / 2, number / 2 + 0.5, seed + number):
            surge.arrived(at_s)
        surge.reported(number / 2 + 0.5)
    return surge


@pytest.mark.parametrize("rate_rps", [2.0, 20.0, 200.0, 5000.0])
def test_three_times_the_rate_is_a_surge_once(rate_rps: float) -> None:
    """It shows within the time in which the new rate brings some tens of requests, and once."""
    surge = reporting(rate_rps)
    surges = [at_s for at_s in poisson(3 * rate_rps, 30.0, 60.0) if surge.arrived(at_s)]
    assert 1 == len(surges)
    assert surges[0] - 30.0 < 40 / (3 * rate_rps) + 0.05
    assert surge.reported(60.0)


def test_what_was_reported_is_no_surge() -> None:
    """After a report of a jump the same rate is what is expected, from the second one at latest."""
    surge = reporting(50.0)
    now_s = next(at_s for at_s in poisson(200.0, 30.0, 31.0) if surge.arrived(at_s))
    surge.reported(now_s)
    again = []
    for number in range(20):
        arrivals = poisson(200.0, now_s, now_s + 0.5, number)
        again += [number for at_s in arrivals if surge.arrived(at_s)]
        now_s += 0.5
        surge.reported(now_s)
    assert not [number for number in again if number > 1]


@pytest.mark.parametrize("rate_rps", [0.2, 3.0, 60.0, 900.0])
def test_chance_is_rarely_a_surge(rate_rps: float) -> None:
    """Fewer than one report in a thousand of an even load is out of turn."""
    surge, surges, count = reporting(rate_rps), 0, 4000
    for number in range(count):
        start_s = 30.0 + number / 2
        for at_s in poisson(rate_rps, start_s, start_s + 0.5, 1000 + number):
            surges += surge.arrived(at_s)
        surge.reported(start_s + 0.5)
    assert surges < count / 1000


def test_a_fall_is_no_surge() -> None:
    """The scaler hears of it with the next report."""
    surge = reporting(100.0)
    assert not any(surge.arrived(at_s) for at_s in poisson(10.0, 30.0, 40.0))
    assert not surge.reported(40.0)


@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.booleans()),
        max_size=300,  # a pause; then a request or report
    )
)
def test_a_surge_is_detected_as_soon_as_by_checking_each_arrival(
    events: list[tuple[float, bool]],
) -> None:
    """Checking only where there can be one finds what checking at each request finds."""
    sparing, thorough, now_s = SurgeDetector(0.0), SurgeDetector(0.0), 0.0
    detected = False
    for pause_s, is_report in events:
        now_s += pause_s
        if is_report:
            assert thorough.reported(now_s) == sparing.reported(now_s)
            detected = False
            continue
        thorough._check_at = 0
        found = thorough.arrived(now_s)
        assert sparing.arrived(now_s) == (found and not detected)
        detected = detected or found


def test_a_load_reports_a_surge_at_once_and_in_its_sample() -> None:
    """`on_surge` is called at once, and the next sample says why."""
    load, called = Load(0.0), []
    load.on_surge = lambda: called.append(True)
    for at_s in poisson(20.0, 0.0, 10.0):
        load.arrived("web", at_s)
    load.take(10.0)
    called.clear()
    for at_s in poisson(200.0, 10.0, 10.5):
        load.arrived("web", at_s)
    assert [True] == called
    assert load.take(10.5).surging
    assert not load.take(11.0).surging


def test_requests_that_were_only_counted_make_the_same_surge() -> None:
    """The same surge and the same rate, whether each was checked or not."""
    one, other = SurgeDetector(0.0, 10.0), SurgeDetector(0.0, 10.0)
    for number, count in enumerate((10, 9, 60, 60)):
        for _ in range(count):
            one.arrived(number + 0.5)
        other.add(count)
        assert one.reported(number + 1.0) == other.reported(number + 1.0) == (number == 2)
        assert one.reported_rps == other.reported_rps
