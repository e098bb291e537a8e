"""Batches of several applications: worked examples, identities and a simulated buffer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.errors import ConfigError
from carpool.latency import Configuration
from carpool.latency.linear import Linear
from scaler.planning.cost import Prices, billing
from scaler.policies.harmonybatch.execution_times import SlicedTimes
from scaler.policies.harmonybatch.merged_windows import MergedBatches
from scaler.policies.harmonybatch.poisson_windows import expected_window
from tests.effort import loosened, scaled
from tests.scaler.printed_harmonybatch import eq_5_again_and_again, older_artefact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.arrivals.processes import Times

# Windows, rates; mean window exactly, by Eq. 5 again and again, and by the older artefact; and what
# 60 000 simulated batches had, to 6e-4. To three digits and more, as HarmonyBatch's formulas give.
WORKED = [
    pytest.param((0.1, 0.3), (5, 10), 0.18428, 0.18428, 0.23460, 0.1841, id="two"),
    pytest.param((0.45, 0.65), (10, 20), 0.50764, 0.50764, 0.45064, 0.5080, id="two, late"),
    pytest.param((0.2, 0.5, 1), (5, 10, 20), 0.34167, 0.34168, 0.24480, 0.3414, id="three"),
    pytest.param(
        (0.15, 0.25, 0.35, 0.45, 0.55, 0.65),
        (1, 2, 1, 2, 3, 20),
        *(0.39761, 0.40481, 0.68122, 0.3983),
        id="six",
    ),
    pytest.param(
        (0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65),
        (5,) * 7,
        *(0.15244, 0.15357, 0.29645, 0.1528),
        id="seven",
    ),
    pytest.param((0.1, 0.3), (0.2, 0.5), 0.24004, 0.24004, 0.70867, 0.2402, id="sparse"),
]


class Fixed:
    """Executions of constant duration per batch size."""

    def __init__(self, sizes: int, base_s: float, item_s: float) -> None:
        self._seconds = base_s + item_s * np.arange(1, sizes + 1)

    def of(self, size: int) -> float:
        return float(self._seconds[size - 1])

    def tails(self, at_s: Times) -> tuple[Times, Times]:
        seconds = self._seconds.reshape(-1, *[1] * np.ndim(at_s))
        return np.where(seconds > at_s, 1.0, 0.0), np.maximum(seconds - at_s, 0.0)


class Uniform:
    """Executions that take any time up to a longest one with the same probability."""

    def __init__(self, sizes: int, longest_s: float) -> None:
        self._sizes = sizes
        self._longest_s = longest_s

    def tails(self, at_s: Times) -> tuple[Times, Times]:
        left_s = np.maximum(self._longest_s - at_s, 0.0)
        over = np.minimum(left_s / self._longest_s, 1.0)
        integral = np.where(at_s < 0, self._longest_s / 2 - at_s, left_s * over / 2)
        return np.stack([over] * self._sizes), np.stack([integral] * self._sizes)


def mean_wait_s(law: MergedBatches, app: int) -> float:
    """Return an application's mean wait.

    An execution of any time up to the window exceeds what a wait leaves of the window with the
    probability wait / window.
    """
    window_s = law.windows_s[app]
    return window_s * law.late_share(app, window_s, Uniform(law.size, window_s))


@pytest.mark.parametrize(("windows", "rates", "exact", "printed", "older", "run"), WORKED)
def test_the_mean_window_of_the_worked_cases(
    windows: Sequence[float],
    rates: Sequence[float],
    exact: float,
    printed: float,
    older: float,
    run: float,
) -> None:
    """The mean window is exact to five digits, as are the printed approximations."""
    assert pytest.approx(exact, abs=1e-5) == expected_window(rates, windows)
    assert pytest.approx(run, abs=2e-3) == expected_window(rates, windows)
    assert pytest.approx(printed, abs=1e-5) == eq_5_again_and_again(rates, windows)
    assert pytest.approx(older, abs=1e-5) == older_artefact(rates, windows)
    unbounded = MergedBatches(rates, windows, 200)
    assert pytest.approx(1 + sum(rates) * exact, rel=1e-4) == unbounded.mean_size  # Wald


def test_mean_batches_are_smaller_than_eq_11() -> None:
    """Mean batches are smaller than the 14 and 10 that Eq. 11 (``floor(R T) + 1``) gives."""
    two = MergedBatches((10, 20), (0.3996, 0.5996), 14)
    assert pytest.approx(12.79, abs=5e-3) == two.mean_size
    assert pytest.approx(9.413, abs=5e-4) == MergedBatches((15,), (0.7133,), 10).mean_size


@pytest.mark.parametrize(
    ("rate", "window", "shares", "mean", "wait"),
    [
        (10, 0.2, (0.13534, 0.27067, 0.27067, 0.32332), 2.78198, 0.10865),
        (20, 0.2, (0.01832, 0.07326, 0.14653, 0.76190), 3.65200, 0.06961),
    ],
)
def test_one_application_follows_law_of_batch(
    rate: float, window: float, shares: tuple[float, ...], mean: float, wait: float
) -> None:
    """For one application, sizes and mean wait are those of BATCH's law (SC'20, Eq. 7)."""
    batches = MergedBatches((rate,), (window,), 4)
    assert pytest.approx(shares, abs=1e-5) == batches.sizes
    assert pytest.approx(mean, abs=1e-5) == batches.mean_size
    assert pytest.approx(wait, abs=1e-4) == mean_wait_s(batches, 0)


def test_quantiles_of_one_application() -> None:
    """P50 and P95 of wait plus execution are those of the worked example."""
    batches = MergedBatches((10,), (0.2,), 4, 512)
    executions = Fixed(4, 0.05, 0.02)
    for quantile, at_s in ((0.5, 0.2281), (0.95, 0.3100)):
        shares = [1 - batches.late_share(0, at_s + off, executions) for off in (-1e-3, 1e-3)]
        assert shares[0] - 1e-2 <= quantile <= shares[1] + 1e-2
        assert shares[0] <= shares[1]


def buffer(
    rates: Sequence[float], windows: Sequence[float], size: int, count: int
) -> tuple[list[int], list[list[tuple[float, int]]]]:
    """Return batch sizes, and waits with batch sizes per application, of a simulated buffer."""
    draw = np.random.default_rng(7)
    share = np.array(rates) / sum(rates)
    sizes: list[int] = []
    waits: list[list[tuple[float, int]]] = [[] for _ in rates]
    for _ in range(count):
        gaps = draw.exponential(1 / sum(rates), size)
        apps = draw.choice(len(rates), size, p=share)
        at, due = 0.0, math.inf
        members: list[tuple[float, int]] = []
        for gap, app in zip(gaps, apps, strict=True):
            if members and at + gap > due:
                at = due
                break
            at += gap if members else 0.0
            members.append((at, int(app)))
            due = min(due, at + windows[int(app)])
        else:
            due = at
        sizes.append(len(members))
        for arrived, app in members:
            waits[app].append((due - arrived, len(members)))
    return sizes, waits


def test_law_agrees_with_simulated_buffer() -> None:
    """Sizes, waits and late shares of three applications agree with a simulated buffer."""
    rates, windows, size = (5, 10, 20), (0.2, 0.3, 0.5), 9
    executions = Fixed(size, 0.05, 0.012)
    slos = (0.3, 0.42, 0.6)
    sizes, waits = buffer(rates, windows, size, scaled(30_000))
    law = MergedBatches(rates, windows, size)
    counted = np.bincount(sizes, minlength=size + 1)[1:] / len(sizes)
    assert pytest.approx(counted, abs=loosened(0.008)) == law.sizes
    assert pytest.approx(np.mean(sizes), rel=loosened(0.01)) == law.mean_size
    for app, slo_s in enumerate(slos):
        mine = np.array([wait for wait, _ in waits[app]])
        late = np.mean([wait + executions.of(n) > slo_s for wait, n in waits[app]])
        assert pytest.approx(mine.mean(), rel=loosened(0.02)) == mean_wait_s(law, app)
        assert pytest.approx(late, abs=loosened(0.006)) == law.late_share(app, slo_s, executions)
        for at_s in (0.05, 0.15, windows[app] - 1e-6):
            over = law.late_share(app, at_s, Fixed(size, 0.0, 0.0))
            assert pytest.approx(np.mean(mine > at_s), abs=loosened(0.01)) == over


@pytest.mark.parametrize(
    ("size", "mean_size", "late"),
    [
        (2, 1.960419742911791, (0.1229463016809911, 0.033601698925302945, 0.009659168822955574)),
        (3, 2.7966841290100355, (0.35481773023552166, 0.11708613901135372, 0.038677271519956535)),
        (8, 4.2918764277206805, (0.9095678342493105, 0.6085554261558349, 0.31524409049067137)),
    ],
)
def test_faster_computation_gives_same_results(
    size: int, mean_size: float, late: tuple[float, ...]
) -> None:
    """The faster computation gives the same results as the former one, to the last digits."""
    times = SlicedTimes(Linear(0.05, 0.005), Configuration(size, 1.0, 0.0), billing(Prices()))
    law = MergedBatches((40.0, 25.0, 3.0), (0.04, 0.09, 0.2), size, 24)
    shares = [law.late_share(app, slo_s, times) for app, slo_s in enumerate((0.08, 0.1, 0.12))]
    assert pytest.approx(mean_size, rel=1e-13) == law.mean_size
    assert pytest.approx(late, rel=1e-13) == shares


RATES = st.lists(st.floats(-4, 5).map(lambda power: 10**power), min_size=1, max_size=5)


@settings(max_examples=scaled(60))
@given(rates=RATES, size=st.integers(1, 40), data=st.data())
def test_results_are_valid_at_any_rate(rates: list[float], size: int, data: st.DataObject) -> None:
    """Results are valid at rates from 1e-4 to 1e5 per second and windows from 0 to seconds."""
    windows = [data.draw(st.sampled_from((0.0, 1e-3, 0.1, 0.1, 3.0))) for _ in rates]
    law = MergedBatches(rates, windows, size)
    assert pytest.approx(1) == law.sizes.sum()
    assert law.sizes.min() >= 0
    assert pytest.approx(law.mean_size, rel=1e-3) == law.sizes @ np.arange(1, size + 1)
    assert 1 <= law.mean_size <= size + 1e-6
    for app, window in enumerate(windows):
        never = law.late_share(app, window + 1.0, Fixed(size, 0.5, 0.0))
        assert pytest.approx(0, abs=1e-9) == never
        assert pytest.approx(1, rel=2e-3) == law.late_share(app, 0.1, Fixed(size, 9.0, 0.0))


@settings(max_examples=scaled(40))
@given(rates=RATES, size=st.integers(2, 32), data=st.data())
def test_default_resolution_is_accurate(rates: list[float], size: int, data: st.DataObject) -> None:
    """The default resolution is within 0.2 % of the limit for many cells."""
    windows = [data.draw(st.floats(0, 2)) for _ in rates]
    few, many = (MergedBatches(rates, windows, size, cells) for cells in (24, 1024))
    assert pytest.approx(many.mean_size, rel=2e-3) == few.mean_size


def test_application_without_load_has_law() -> None:
    """An application without load has the law of a request that it might send."""
    law = MergedBatches((5, 0), (0.1, 0.3), 4)
    assert pytest.approx(MergedBatches((5,), (0.1,), 4).mean_size) == law.mean_size
    assert 0 < mean_wait_s(law, 1) < law.windows_s[1]


@pytest.mark.parametrize(
    ("rates", "windows", "size"),
    [
        ((0, 0), (1, 1), 4),
        ((1,), (1, 2), 4),
        ((), (), 4),
        ((-1, 2), (1, 1), 4),
        ((1,), (math.inf,), 4),
        ((math.nan,), (1,), 4),
        ((1,), (1,), 0),
    ],
)
def test_invalid_rates_windows_and_sizes_are_refused(
    rates: tuple[float, ...], windows: tuple[float, ...], size: int
) -> None:
    """Invalid rates, windows and sizes are refused."""
    with pytest.raises(ConfigError, match="expected"):
        MergedBatches(rates, windows, size)
