"""Bursty arrivals: MMPP(2) and Markovian arrival processes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.arrivals.markov import MarkovArrivals, mmpp2
from carpool.arrivals.processes import ArrivalProcess, Poisson, timestamps
from carpool.errors import ConfigError
from tests.scaler.windows import mean_batch_and_wait

BURSTY = mmpp2((5, 50), (0.5, 1.0))
# Erlang-2 gaps of mean 1: a silent change and then one with a request.
ERLANG = MarkovArrivals(((-2, 2), (0, -2)), ((0, 0), (2, 0)))
# Three phases, with requests that change the phase and requests that do not.
THREE = MarkovArrivals(
    ((-9, 1, 0), (0.5, -30, 0.5), (0, 2, -4)), ((7, 0, 1), (9, 15, 5), (0.5, 0.5, 1))
)


@pytest.mark.parametrize(
    ("rates", "switch", "scv", "correlation"),
    [((10, 120), (0.05, 0.05), 6.0, 0.41), ((10, 200), (0.01, 0.01), 10.0, 0.45)],
)
def test_published_processes_have_their_published_burstiness(
    rates: tuple[float, float], switch: tuple[float, float], scv: float, correlation: float
) -> None:
    """SCV and lag-1 correlation of the gaps are those published for BATCH's workloads (SC'20)."""
    process = mmpp2(rates, switch)
    assert pytest.approx(scv, abs=0.05) == process.gap_scv
    assert pytest.approx(correlation, abs=0.005) == process.gap_correlation()
    assert pytest.approx(sum(rates) / 2) == process.mean_rate


def test_phases_by_time_and_by_requests() -> None:
    """The slow phase of ``BURSTY`` holds two thirds of the time and a sixth of the requests."""
    process: ArrivalProcess = BURSTY
    assert pytest.approx([2 / 3, 1 / 3]) == BURSTY.stationary().tolist()
    assert pytest.approx([1 / 6, 5 / 6]) == BURSTY.at_arrivals().tolist()
    assert pytest.approx((20.0, 20.0)) == (process.mean_rate, process.rate(3.0))


def test_phase_rates_are_both_matrices() -> None:
    """A policy sees the rates of bursty arrivals in each phase; Poisson arrivals have none."""
    assert (((-5.5, 0.5), (1.0, -51.0)), ((5, 0.0), (0.0, 50))) == BURSTY.phase_rates
    assert Poisson(3.0).phase_rates is None


@given(*(st.floats(0, 100), st.floats(0.1, 100)), *(st.floats(0.01, 10), st.floats(0.01, 10)))
def test_mmpp2_closed_forms(first: float, second: float, leave: float, back: float) -> None:
    """Mean rate and dispersion agree with the closed forms for two phases."""
    process = mmpp2((first, second), (leave, back))
    flow = first * back + second * leave
    spread = 2 * (first - second) ** 2 * leave * back / ((leave + back) ** 2 * flow)
    assert pytest.approx(flow / (leave + back)) == process.mean_rate
    assert pytest.approx(1 + spread, rel=1e-6) == process.dispersion


def test_equal_rates_are_poisson() -> None:
    """Switching between equal rates has the variation, correlation and dispersion of Poisson."""
    process = mmpp2((7, 7), (0.3, 2))
    assert pytest.approx((1, 0, 1)) == (
        process.gap_scv,
        process.gap_correlation(),
        process.dispersion,
    )


def test_erlang_gaps() -> None:
    """Erlang-2 gaps have an SCV of 0.5, no correlation and a dispersion of 0.5."""
    assert pytest.approx((1, 0.5, 0, 0.5), abs=1e-9) == (
        ERLANG.mean_rate,
        ERLANG.gap_scv,
        ERLANG.gap_correlation(),
        ERLANG.dispersion,
    )


@pytest.mark.parametrize(
    "process", [BURSTY, ERLANG, THREE, mmpp2((10, 120), (0.05, 0.05)), mmpp2((0, 9), (1, 3))]
)
def test_samples_agree_with_formulas(process: MarkovArrivals) -> None:
    """Mean, variation and correlation of sampled gaps agree with those from the matrices."""
    between = np.diff(timestamps(process, 400_000 / process.mean_rate, seed=1))
    assert pytest.approx(1 / process.mean_rate, rel=0.03) == between.mean()
    assert pytest.approx(process.gap_scv, rel=0.05) == between.var() / between.mean() ** 2
    sampled = np.corrcoef(between[1:], between[:-1])[0, 1]
    assert pytest.approx(process.gap_correlation(), abs=0.02) == sampled


def test_count_dispersion_agrees_with_formula() -> None:
    """The variance-to-mean ratio of counts in long windows agrees with the computed dispersion."""
    window_s, windows = 50.0, 4000
    times = timestamps(BURSTY, window_s * windows, seed=2)
    counts = np.histogram(times, bins=np.arange(windows + 1) * window_s)[0]
    assert pytest.approx(BURSTY.dispersion, rel=0.1) == counts.var() / counts.mean()


@pytest.mark.parametrize(
    ("batch", "wait_s", "mean_batch", "mean_wait_s"),
    [(8, 0.1, 3.8740, 0.05868), (16, 0.3, 8.0192, None)],
)
def test_batches_of_bursty_arrivals(
    batch: int, wait_s: float, mean_batch: float, mean_wait_s: float | None
) -> None:
    """Size-or-window batches have the mean size and wait of their exact law."""
    times = timestamps(BURSTY, 20_000.0, seed=4)
    size, wait = mean_batch_and_wait(times, batch, wait_s)
    assert pytest.approx(mean_batch, rel=0.01) == size
    assert mean_wait_s is None or pytest.approx(mean_wait_s, rel=0.02) == wait


@pytest.mark.parametrize(
    ("rates", "switch", "expected"),
    [
        ((1, -1), (1, 1), "rates = .*expected two rates of at least 0"),
        ((0, 0), (1, 1), "one of them above 0"),
        ((1, 2, 3), (1, 1), "rates"),
        ((1, math.nan), (1, 1), "rates"),
        ((1, 2), (0, 1), "switch = .*expected two rates above 0"),
        ((1, 2), (1,), "switch"),
    ],
)
def test_bad_rates(rates: tuple[float, ...], switch: tuple[float, ...], expected: str) -> None:
    """Rates that define no process are refused with an error that names them."""
    with pytest.raises(ConfigError, match=expected):
        mmpp2(rates, switch)


@pytest.mark.parametrize(
    ("silent", "arriving"),
    [
        pytest.param((), (), id="empty"),
        pytest.param(((-1,),), ((1, 0), (0, 1)), id="sizes"),
        pytest.param(((-1, 0), (0, -1)), ((1,), (1,)), id="not square"),
        pytest.param(((-2,),), ((1,),), id="rows do not add up"),
        pytest.param(((1,),), ((-1,),), id="negative"),
        pytest.param(((-1, 1), (1, -1)), ((0, 0), (0, 0)), id="no request ever"),
        pytest.param(((-1, 0), (0, -2)), ((1, 0), (0, 2)), id="phases that never meet"),
        pytest.param(((math.nan,),), ((1,),), id="not a number"),
    ],
)
def test_bad_matrices(
    silent: tuple[tuple[float, ...], ...], arriving: tuple[tuple[float, ...], ...]
) -> None:
    """Matrices that describe no process are refused."""
    with pytest.raises(ConfigError, match="square matrices of rates"):
        MarkovArrivals(silent, arriving)
