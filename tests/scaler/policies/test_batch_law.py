"""Batches that leave when full or when a window ends: worked examples, exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.arrivals.map_counts import Counting, Markovian, matrices
from carpool.arrivals.markov import MarkovArrivals, mmpp2
from carpool.arrivals.processes import Poisson, timestamps
from carpool.errors import ConfigError
from carpool.latency import Resources
from scaler.planning.cost import PayPerUse, Prices
from scaler.policies.batch.batch_law import BatchLaw, Service
from tests.effort import scaled
from tests.scaler import printed_batch as printed
from tests.scaler.windows import mean_batch_and_wait

BURSTY = mmpp2((5, 50), (0.5, 1.0))
ERLANG = MarkovArrivals(((-2, 2), (0, -2)), ((0, 0), (2, 0)))
THREE = MarkovArrivals(
    ((-9, 1, 0), (0.5, -30, 0.5), (0, 2, -4)), ((7, 0, 1), (9, 15, 5), (0.5, 0.5, 1))
)
# The worked cases: batches of 4 within 0.2 s; batches of k take 0.05 s and 0.02 s for each request.
TWENTY_MS = [0.05 + 0.02 * k for k in range(1, 5)]
TEN_MS = [0.05 + 0.01 * k for k in range(1, 17)]


def three(value: float) -> object:
    """Compare equal to three digits."""
    return pytest.approx(value, rel=1e-3)


def mean_wait_s(law: BatchLaw) -> float:
    """Return the mean wait: the integral of the share of requests that wait longer."""
    middles = (law.waits_s[1:] + law.waits_s[:-1]) / 2  # between them, the share is a straight line
    return float(law.late(middles) @ np.diff(law.waits_s))


def test_eq1_cost_of_a_request() -> None:
    """Two seconds on 1.5 GB have the worked cost, for a batch of four and for a single request."""
    prices = Prices(memory_gb_s=1.66667e-5, call=2e-7)
    batch = PayPerUse(prices).execution(Resources(0.0, 0.0, 1536), 2.0)
    assert three(1.2550025e-5) == batch / 4
    assert three(5.02001e-5) == batch


@pytest.mark.parametrize(
    ("rate", "sizes", "mean_size", "wait_s"),
    [
        (10, [0.13534, 0.27067, 0.27067, 0.32332], 2.78198, 0.10865),
        (20, [0.01832, 0.07326, 0.14653, 0.76190], 3.65200, 0.06961),
    ],
)
def test_poisson_sizes_and_waits(
    rate: float, sizes: list[float], mean_size: float, wait_s: float
) -> None:
    """Batch sizes follow Eq. 7, with the resulting mean size and wait."""
    law = BatchLaw(Poisson(rate), 4, 0.2)
    assert pytest.approx(sizes, abs=6e-6) == law.sizes.tolist()
    assert pytest.approx(printed.eq7(rate, 4, 0.2).tolist()) == law.sizes.tolist()
    assert three(mean_size) == law.mean_size
    assert three(wait_s) == mean_wait_s(law)


@pytest.mark.parametrize(
    ("rate", "window_s", "shares"),
    [
        (10, 0.2, [0.04865, 0.19459, 0.29188, 0.46488]),
        (20, 0.05, [0.18611, 0.37222, 0.27917, 0.16250]),
    ],
)
def test_poisson_sizes_by_request(rate: float, window_s: float, shares: list[float]) -> None:
    """Shares of requests by batch size follow Eq. 8."""
    law = BatchLaw(Poisson(rate), 4, window_s)
    assert pytest.approx(shares, abs=6e-6) == printed.by_request(law.sizes).tolist()


@pytest.mark.parametrize(("rate", "p50", "p95"), [(10, 0.2281, 0.3100), (20, 0.1824, 0.3100)])
def test_poisson_latency(rate: float, p50: float, p95: float) -> None:
    """Median and 95th percentile of the latency are exact."""
    found = BatchLaw(Poisson(rate), 4, 0.2).quantiles([0.5, 0.95], Service.fixed(TWENTY_MS))
    assert three(p50) == found[0]
    assert three(p95) == found[1]


def test_eq9_completes_small_batches_too_early() -> None:
    """Eq. 9 completes small batches too early: 0.547 at 0.135 s instead of 0.173."""
    law, service = BatchLaw(Poisson(10), 4, 0.2), Service.fixed(TWENTY_MS)
    requests = printed.by_request(law.sizes)
    fill_s = min(printed.tau(Poisson(10), 4), 0.2)
    assert pytest.approx(0.173, abs=5e-4) == 1 - law.late([0.135], service)[0]
    assert pytest.approx(0.547, abs=5e-4) == printed.eq9(0.135, requests, TWENTY_MS, 0.2, fill_s)
    quantiles = [printed.eq9_quantile(at, requests, TWENTY_MS, 0.2, fill_s) for at in (0.5, 0.95)]
    assert pytest.approx([0.130, 0.3085], abs=5e-4) == quantiles


def test_eq9_underestimates_p95_at_higher_rates() -> None:
    """The 95th percentile of Eq. 9 at 20 requests/s is 0.271 s instead of 0.310."""
    law = BatchLaw(Poisson(20), 4, 0.2)
    fill_s = printed.tau(Poisson(20), 4)
    assert pytest.approx(0.15) == fill_s
    requests = printed.by_request(law.sizes)
    found = printed.eq9_quantile(0.95, requests, TWENTY_MS, 0.2, fill_s)
    assert pytest.approx(0.271, abs=5e-4) == found


def test_eq9_is_nearly_right_if_next_request_exceeds_window() -> None:
    """Eq. 9 gives 0.4346 s instead of 0.4274 if one more request takes longer than the window."""
    law, seconds = BatchLaw(Poisson(20), 4, 0.05), [0.1, 0.2, 0.3, 0.4]
    requests = printed.by_request(law.sizes)
    assert pytest.approx(0.4346, abs=5e-5) == printed.eq9_quantile(
        0.95, requests, seconds, 0.05, 0.05
    )
    assert three(0.4274) == law.quantiles([0.95], Service.fixed(seconds))[0]


@pytest.mark.parametrize(
    ("size", "window_s", "guessed", "exact"),
    [
        (8, 0.10, [0.5455, 0.4545], [0.4249, 0.5751]),
        (4, 0.05, [0.3750, 0.6250], [0.3268, 0.6732]),
        (16, 0.3, [0.6154, 0.3846], [0.5184, 0.4816]),
    ],
)
def test_shares_of_phases_in_which_batches_begin(
    size: int, window_s: float, guessed: list[float], exact: list[float]
) -> None:
    """Phases in which batches begin have the exact shares; the authors' solver only guesses."""
    found = BatchLaw(BURSTY, size, window_s).first_phase
    assert pytest.approx(exact, abs=6e-5) == found.tolist()
    assert (
        pytest.approx(guessed, abs=6e-5)
        == printed.solver_phases((5, 50), (0.5, 1.0), size, window_s).tolist()
    )


def test_solver_guess_overestimates_batches_of_one() -> None:
    """The guess gives a share of 0.327 for batches of one instead of 0.259."""
    guess = printed.solver_phases((5, 50), (0.5, 1.0), 8, 0.1)
    assert pytest.approx(0.327, abs=5e-4) == printed.solver_sizes(BURSTY, guess, 8, 0.1)[0]
    assert pytest.approx(0.259, abs=5e-4) == BatchLaw(BURSTY, 8, 0.1).sizes[0]


def test_bursty_batches_of_8() -> None:
    """Mean size, mean wait and four percentiles are exact; the solver's are up to 29 % off."""
    law = BatchLaw(BURSTY, 8, 0.1)
    assert three(3.8740) == law.mean_size
    assert three(0.05868) == mean_wait_s(law)
    shares = [0.5, 0.9, 0.95, 0.99]
    found = law.quantiles(shares, Service.fixed(TEN_MS)).tolist()
    assert pytest.approx([0.1634, 0.2072, 0.2141, 0.2217], rel=1e-3) == found
    guess = printed.solver_phases((5, 50), (0.5, 1.0), 8, 0.1)
    requests = printed.by_request(printed.solver_sizes(BURSTY, guess, 8, 0.1))
    solver = [printed.eq9_quantile(at, requests, TEN_MS[:8], 0.1, 0.1) for at in shares]
    assert pytest.approx([0.1164, 0.1882, 0.2091, 0.2258], abs=2e-3) == solver


def test_bursty_batches_of_16() -> None:
    """Mean size, median and 95th percentile are exact."""
    law = BatchLaw(BURSTY, 16, 0.3)
    assert three(8.0192) == law.mean_size
    found = law.quantiles([0.5, 0.95], Service.fixed(TEN_MS)).tolist()
    assert pytest.approx([0.3347, 0.4700], rel=1e-3) == found


@pytest.mark.parametrize("process", [BURSTY, ERLANG, THREE, Poisson(3.0)])
@pytest.mark.parametrize(("size", "window_s"), [(1, 0.5), (2, 0.3), (5, 0.2), (5, 2.0)])
def test_every_request_waits_between_zero_and_the_window(
    process: Markovian, size: int, window_s: float
) -> None:
    """Every request waits for between no time and the window, in batches of one to a full one."""
    law = BatchLaw(process, size, window_s)
    assert [1.0, 0.0] == pytest.approx(law.late([-1e-9, window_s]).tolist())
    assert pytest.approx(1) == law.sizes.sum()


@pytest.mark.parametrize("process", [BURSTY, ERLANG, THREE])
def test_the_law_agrees_with_a_sample(process: MarkovArrivals) -> None:
    """Mean size and wait agree with those of sampled batches."""
    law = BatchLaw(process, 5, 0.2)
    times = timestamps(process, 60_000 / process.mean_rate, seed=3)
    size, wait_s = mean_batch_and_wait(times, 5, 0.2)
    assert pytest.approx(law.mean_size, rel=0.02) == size
    assert pytest.approx(mean_wait_s(law), rel=0.03) == wait_s


def test_random_times() -> None:
    """A random execution time gives the mixture of both laws; a delay shifts the latency."""
    law = BatchLaw(BURSTY, 4, 0.1)
    both = Service(np.array([[0.1, 0.3]] * 4), np.array([0.75, 0.25]))
    quick, slow = (Service.fixed([exec_s] * 4) for exec_s in (0.1, 0.3))
    at = [0.15, 0.35]
    expected = 0.75 * law.late(at, quick) + 0.25 * law.late(at, slow)
    assert pytest.approx(expected.tolist()) == law.late(at, both).tolist()
    assert pytest.approx([0.15]) == both.mean_s()[:1].tolist()
    moved = both.delayed(np.array([0.05]), np.ones(1))
    assert pytest.approx(law.late([0.12], both).tolist()) == law.late([0.17], moved).tolist()


@pytest.mark.parametrize("rate", [0.0, 1e-4, 1e5])
@pytest.mark.parametrize("size", [1, 32])
def test_extreme_rates(rate: float, size: int) -> None:
    """Results are finite, and batches have one request at low rates and are full at high ones."""
    law = BatchLaw(Poisson(rate), size, 0.5)
    found = [law.mean_size, *law.quantiles([0.5, 0.99]).tolist()]
    assert np.isfinite(found).all()
    assert pytest.approx(size if rate > 1 else 1, rel=1e-3) == law.mean_size


def test_extreme_bursts() -> None:
    """Results are plausible for rates five orders of magnitude apart that rarely switch."""
    law = BatchLaw(mmpp2((1, 1e5), (1e-3, 1e-2)), 32, 0.5)
    assert 0 < mean_wait_s(law) < 0.5
    assert pytest.approx(1) == law.first_phase.sum()
    assert 1 < law.mean_size < 32


@settings(max_examples=scaled(40))
@given(st.floats(0.01, 1e4), st.floats(0, 10), st.integers(2, 32))
def test_poisson_closed_form(rate: float, window_s: float, size: int) -> None:
    """Mean size and wait agree with the closed form for Poisson arrivals."""
    law = BatchLaw(Poisson(rate), size, window_s)
    mean = rate * window_s
    logs = [k * math.log(mean) - mean - math.lgamma(k + 1) if mean else -k * 1e9 for k in range(32)]
    tails = 1 - np.cumsum(np.exp(logs))[: size - 1]
    assert pytest.approx(1 + tails.sum(), rel=1e-9) == law.mean_size
    held = (np.arange(1, size) * tails).sum() / rate
    assert pytest.approx(held / law.mean_size, rel=1e-3, abs=1e-12) == mean_wait_s(law)


def test_counts_and_integrals_on_grid_agree_with_single_values() -> None:
    """Grid and single values agree, and rows of probabilities add up to 1 with enough levels."""
    counting = Counting(*matrices(BURSTY), 80)
    grid, single = counting.on_grid(0.05, 12), counting.at([0.05 * n for n in range(13)])
    assert pytest.approx(single.within.ravel().tolist()) == grid.within.ravel().tolist()
    assert pytest.approx(single.spent.ravel().tolist()) == grid.spent.ravel().tolist()
    assert np.allclose(1, grid.within.sum(axis=(1, 3)))
    assert np.allclose((np.arange(13) * 0.05)[:, None], grid.spent.sum(axis=(1, 3)))


@pytest.mark.parametrize(
    ("size", "window_s", "named"), [(0, 1.0, "size"), (1, -1.0, "window_s"), (1, math.nan, "w")]
)
def test_invalid_size_or_window_is_refused(size: int, window_s: float, named: str) -> None:
    """An invalid size or window is refused with an error that names it."""
    with pytest.raises(ConfigError, match=named):
        BatchLaw(Poisson(1), size, window_s)


@pytest.mark.parametrize(
    "process", [Poisson(0.5), Poisson(40.0), pytest.param(BURSTY, marks=pytest.mark.slow)]
)
def test_a_window_that_just_fits_is_in_time(process: Markovian) -> None:
    """A window that just fits the objective makes no request late, whatever the rounding."""
    objective_s = 0.12
    for batch_s in (0.03, 0.042, 0.066, 0.114):
        for steps in range(1, 65):
            window_s = (objective_s - batch_s) / steps * steps
            law = BatchLaw(process, 4, window_s)
            assert law.late([objective_s], Service.fixed([batch_s] * 4))[0] == 0
