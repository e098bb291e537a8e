"""The policy `breakeven`: the cheapest windows at a price, and those without observations."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.arrivals.processes import Poisson, timestamps
from scaler.prewarm.breakeven import _cheapest
from scaler.prewarm.replay import replay
from tests.scaler.prewarm.samples import made, told

if TYPE_CHECKING:
    from collections.abc import Sequence

PRICE_S = 600.0


def cost_s(
    edges_s: Sequence[float], weights: Sequence[float], price_s: float, windows: tuple[float, float]
) -> float:
    """Return the cost of idle seconds and cold starts, with idle times uniform in each bin."""
    load_s, release_s = windows
    total = 0.0
    for (low, high), weight in zip(itertools.pairwise(edges_s), weights, strict=False):
        if high <= load_s:
            total += weight * price_s
        elif low >= release_s:
            total += weight * (price_s + release_s - load_s)
        else:
            total += weight * ((low + high) / 2 - load_s)
    return total + weights[-1] * (price_s + release_s - load_s)


@given(
    widths=st.lists(st.floats(1, 1000), min_size=1, max_size=8),
    counts=st.lists(st.integers(0, 20), min_size=9, max_size=9),
    price_s=st.floats(1, 5000),
)
def test_no_other_windows_are_cheaper(
    widths: list[float], counts: list[int], price_s: float
) -> None:
    """No other pair of edges is cheaper than the one found."""
    edges_s = [0.0, *itertools.accumulate(widths)]
    weights = [float(count) for count in counts[: len(widths)]] + [float(counts[-1])]
    found = _cheapest(edges_s, weights, price_s)
    assert found.keep_alive_s is not None
    pairs = itertools.combinations_with_replacement(edges_s, 2)
    least_s = min(cost_s(edges_s, weights, price_s, pair) for pair in pairs)
    found_s = cost_s(edges_s, weights, price_s, (found.prewarm_s, found.keep_alive_s))
    assert least_s == pytest.approx(found_s, abs=1e-6)


def test_keep_alive_equals_price_without_observations() -> None:
    """Without observations, the keep-alive time is about the price.

    That costs at most twice as much as with perfect foresight.
    """
    windows = made("breakeven", price_s=PRICE_S).windows(0.0)
    assert 0 == windows.prewarm_s
    assert PRICE_S == pytest.approx(windows.keep_alive_s, rel=0.1)


def test_periodic_function_is_loaded_ahead() -> None:
    """With an hourly call the instance is released in between and loads within 10 % of its time."""
    windows = told(made("breakeven", price_s=PRICE_S), [3600.0] * 12).windows(12 * 3600.0)
    assert windows.keep_alive_s is not None
    assert 3600 * 0.9 < windows.prewarm_s <= 3600 <= windows.keep_alive_s < 3600 * 1.1


@pytest.mark.parametrize(("rate_rps", "kept"), [(1 / 100, True), (1 / 6000, False)])
def test_poisson_arrivals_keep_instance_only_at_high_rate(rate_rps: float, *, kept: bool) -> None:
    """Poisson arrivals keep an instance if they come more often than one per price."""
    arrivals_s = timestamps(Poisson(rate_rps), 300 / rate_rps, seed=7)
    policy = told(made("breakeven", price_s=PRICE_S, window_s=None), np.diff(arrivals_s).tolist())
    windows = policy.windows(float(arrivals_s[-1]))
    assert windows.keep_alive_s is not None
    kept_s = windows.keep_alive_s - windows.prewarm_s
    assert kept == (windows.prewarm_s == 0 and kept_s > 400)
    assert kept or kept_s < 200


def test_a_higher_price_buys_fewer_cold_starts() -> None:
    """Each higher price has fewer cold starts and more idle time."""
    draw = np.random.default_rng(2)
    arrivals_s = np.cumsum(np.exp(draw.normal(5, 1.5, 2000)))
    found = [
        replay(arrivals_s, made("breakeven", price_s=price_s)) for price_s in (60, 300, 1500, 7500)
    ]
    assert sorted((run.cold_starts for run in found), reverse=True) == [
        run.cold_starts for run in found
    ]
    assert sorted(run.idle_s for run in found) == [run.idle_s for run in found]
    assert found[-1].cold_starts < found[0].cold_starts / 3


def test_cost_is_close_to_best_fixed_keep_alive() -> None:
    """With idle times of many lengths, its cost is within 5 % of the best of 60 fixed times."""
    draw = np.random.default_rng(4)
    arrivals_s = np.cumsum(np.exp(draw.normal(5, 1.5, 3000)))

    def paid_s(name: str, **params: float) -> float:
        run = replay(arrivals_s, made(name, **params))
        return run.idle_s + PRICE_S * run.cold_starts

    best_s = min(
        paid_s("fixed", keep_alive_s=keep_alive_s) for keep_alive_s in np.geomspace(10, 20000, 60)
    )
    assert paid_s("breakeven", price_s=PRICE_S) <= 1.05 * best_s
