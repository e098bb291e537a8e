"""Superposition of arrival processes."""

from __future__ import annotations

import pytest

from carpool.arrivals.markov import MarkovArrivals, mmpp2
from carpool.arrivals.processes import Poisson
from carpool.arrivals.superposition import superposed

BURSTY = mmpp2((5, 50), (0.5, 1.0))
PUBLISHED = mmpp2((10, 120), (0.05, 0.05))


def test_superposition() -> None:
    """Rates and variances of counts add up, and merged Poisson arrivals are Poisson arrivals."""
    assert Poisson(5.0) == superposed([Poisson(2.0), Poisson(3.0)])
    assert Poisson(0.0) == superposed([])
    both = superposed([BURSTY, Poisson(4.0), PUBLISHED])
    assert isinstance(both, MarkovArrivals)
    assert pytest.approx(20 + 4 + 65) == both.mean_rate
    spread = 20 * BURSTY.dispersion + 4 + 65 * PUBLISHED.dispersion
    assert pytest.approx(spread / 89, rel=1e-6) == both.dispersion


def test_too_many_phases_are_cut() -> None:
    """A superposition with too many phases is reduced to 8 and keeps its mean rate."""
    both = superposed([BURSTY] * 5)
    assert isinstance(both, MarkovArrivals)
    assert 8 == len(both.silent)
    assert pytest.approx(100) == both.mean_rate


def test_a_single_phase_is_a_poisson_process() -> None:
    """A Markovian process with one phase counts as a Poisson process at its rate."""
    assert Poisson(5.0) == superposed([MarkovArrivals(((-2.0,),), ((2.0,),)), Poisson(3.0)])
