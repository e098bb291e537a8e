"""Processes of two phases with given moments."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.arrivals.map_moments import as_mmpp2, base_correlation, map2, switching
from scaler.arrivals.markov import MarkovArrivals, mmpp2
from scaler.arrivals.processes import Poisson

RATES = st.floats(0.1, 100)


def third(process: MarkovArrivals) -> float:
    """Third moment of the gaps over the cube of their mean."""
    return process._gap_moment(3) * process.mean_rate**3


@given(
    st.floats(0.01, 100),
    st.floats(1.05, 30),
    st.floats(1.05, 5),
    st.floats(-0.05, 0.999),
)
def test_mean_variation_third_moment_and_correlation(
    mean_s: float, scv: float, above: float, decay: float
) -> None:
    """All four are met where the four numbers are of a process."""
    wanted = 1.5 * (1 + scv) ** 2 * above
    process, short = map2(mean_s, scv, wanted, decay)
    assert isinstance(process, MarkovArrivals)
    assert pytest.approx(1 / mean_s, rel=1e-6) == process.mean_rate
    assert pytest.approx(scv, rel=1e-5) == process.gap_scv
    assert pytest.approx(wanted, rel=1e-4) == third(process)
    if not short:
        for lag in (1, 3):
            expected = base_correlation(scv) * decay**lag
            assert pytest.approx(expected, abs=1e-6) == process.gap_correlation(lag)


@given(RATES, RATES, st.floats(0.01, 10), st.floats(0.01, 10))
def test_an_mmpp2_is_found_again(first: float, second: float, leave: float, back: float) -> None:
    """From its own moments, with its own rates."""
    given = mmpp2((first, second), (leave, back))
    if given.gap_scv < 1.02:  # hardly another than Poisson arrivals
        return
    decay = given.gap_correlation(2) / given.gap_correlation(1)
    found, short = map2(1 / given.mean_rate, given.gap_scv, third(given), decay)
    assert "" == short
    assert isinstance(found, MarkovArrivals)
    rates = sorted(found.arriving[n][n] for n in (0, 1))
    assert pytest.approx(sorted((first, second)), rel=1e-2) == rates


def test_as_mmpp2_is_none_where_there_is_none() -> None:
    """Gaps that alternate are of no MMPP."""
    process, _ = map2(1.0, 2.0, 20.0, -0.1)
    assert isinstance(process, MarkovArrivals)
    assert as_mmpp2(process) is None


def test_a_third_moment_that_cannot_be() -> None:
    """Is said, and the least that can be stands for it."""
    process, short = map2(1.0, 4.0, 10.0, 0.5)
    assert isinstance(process, MarkovArrivals)
    assert pytest.approx(4.0, rel=1e-6) == process.gap_scv
    assert "a third moment of 10, below 37.5" in short


def test_a_decay_that_cannot_be() -> None:
    """Is said, and the nearest that can be stands for it."""
    process, short = map2(1.0, 4.0, 60.0, 1.5)
    assert isinstance(process, MarkovArrivals)
    assert "a decay of 1.5" in short
    assert math.isfinite(process.gap_correlation())


@pytest.mark.parametrize(("scv", "expected"), [(0.5, 0.5), (0.8, 0.8), (0.2, 0.5)])
def test_regular_arrivals(scv: float, expected: float) -> None:
    """Two stages; half the variation is the least of two phases, and that is said."""
    process, short = map2(0.25, scv, 2.0, 0.0)
    assert isinstance(process, MarkovArrivals)
    assert pytest.approx((4.0, expected)) == (process.mean_rate, process.gap_scv)
    assert ("SCV of 0.2" in short) == (scv == 0.2)


def test_an_scv_of_1_is_poisson() -> None:
    """Whatever else is said."""
    assert Poisson(4.0) == map2(0.25, 1.0, 6.0, 0.3).process


@pytest.mark.parametrize(
    ("rates", "switch"), [((10, 120), (0.05, 0.05)), ((10, 200), (0.01, 0.03)), ((0, 9), (1, 3))]
)
def test_a_rate_that_switches(rates: tuple[float, float], switch: tuple[float, float]) -> None:
    """From mean, variance, skewness and decay of the rate to the process itself."""
    high = switch[0] / sum(switch)
    mean = rates[0] * (1 - high) + rates[1] * high
    variance = high * (1 - high) * (rates[1] - rates[0]) ** 2
    skewness = (1 - 2 * high) / math.sqrt(high * (1 - high))
    found, short = switching(mean, variance, skewness, sum(switch))
    assert "" == short
    assert isinstance(found, MarkovArrivals)
    assert pytest.approx(rates, abs=1e-6) == (found.arriving[0][0], found.arriving[1][1])
    assert pytest.approx(switch) == (found.silent[0][1], found.silent[1][0])


def test_a_rate_that_would_fall_below_zero() -> None:
    """Has no more skewness than leaves the lower at zero."""
    found, short = switching(10.0, 400.0, 0.0, 1.0)
    assert isinstance(found, MarkovArrivals)
    assert "the skewness of its rate" == short
    assert pytest.approx(0.0, abs=1e-9) == found.arriving[0][0]
    assert pytest.approx(10.0) == found.mean_rate
