"""Detection of arrivals beyond the reported rate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.load_counter import LoadCounter
from sidecar.core.surge import SurgeDetector


def poisson(rate_rps: float, from_s: float, until_s: float, seed: int = 1) -> list[float]:
    """Return Poisson arrivals."""
    rng = np.random.default_rng(seed)
    count = rng.poisson(rate_rps * (until_s - from_s))
    return sorted(rng.uniform(from_s, until_s, count).tolist())


def reporting(rate_rps: float, seed: int = 1) -> SurgeDetector:
    """Return a detector after half a minute of reports of a rate, twice a second."""
    surge = SurgeDetector(0.0)
    for number in range(60):
        for at_s in poisson(rate_rps, number / 2, number / 2 + 0.5, seed + number):
            surge.arrived(at_s)
        surge.reported(number / 2 + 0.5)
    return surge


@pytest.mark.parametrize("rate_rps", [2.0, 20.0, 200.0, 5000.0])
def test_tripled_rate_is_detected_as_surge_once(rate_rps: float) -> None:
    """A tripled rate is detected once, within some tens of requests."""
    surge = reporting(rate_rps)
    surges = [at_s for at_s in poisson(3 * rate_rps, 30.0, 60.0) if surge.arrived(at_s)]
    assert 1 == len(surges)
    assert surges[0] - 30.0 < 40 / (3 * rate_rps) + 0.05
    assert surge.reported(60.0)


def test_reported_rate_is_no_surge() -> None:
    """After a jump is reported, the new rate is no surge from the second report on."""
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
def test_even_load_is_rarely_reported_as_surge(rate_rps: float) -> None:
    """Under an even load, fewer than one report in a thousand is a surge."""
    surge, surges, count = reporting(rate_rps), 0, 4000
    for number in range(count):
        start_s = 30.0 + number / 2
        for at_s in poisson(rate_rps, start_s, start_s + 0.5, 1000 + number):
            surges += surge.arrived(at_s)
        surge.reported(start_s + 0.5)
    assert surges < count / 1000


def test_falling_rate_is_no_surge() -> None:
    """A falling rate is no surge, as the next report shows it."""
    surge = reporting(100.0)
    assert not any(surge.arrived(at_s) for at_s in poisson(10.0, 30.0, 40.0))
    assert not surge.reported(40.0)


@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.booleans()),
        max_size=300,  # a pause; then a request or report
    )
)
def test_sparse_checks_find_same_surges_as_check_per_arrival(
    events: list[tuple[float, bool]],
) -> None:
    """Sparse checks find the same surges as a check at each request."""
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


def test_surge_calls_on_surge_immediately_and_marks_sample() -> None:
    """A surge calls `on_surge` once, at once, and marks the next sample."""
    load = LoadCounter(0.0)
    called: list[float] = []
    load.on_surge = called.append
    for at_s in poisson(20.0, 0.0, 10.0):
        load.arrived("web", at_s)
    load.take(10.0)
    called.clear()
    for at_s in poisson(200.0, 10.0, 10.5):
        load.arrived("web", at_s)
    assert 1 == len(called)
    assert load.take(10.5).surging
    assert not load.take(11.0).surging


def test_counted_requests_give_same_surge_as_checked_ones() -> None:
    """Requests that are only counted give the same surge and rate as checked ones."""
    one, other = SurgeDetector(0.0, 10.0), SurgeDetector(0.0, 10.0)
    for number, count in enumerate((10, 9, 60, 60)):
        for _ in range(count):
            one.arrived(number + 0.5)
        other.add(count)
        assert one.reported(number + 1.0) == other.reported(number + 1.0) == (number == 2)
        assert one.reported_rps == other.reported_rps
