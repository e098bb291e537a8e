"""Detection of bursty arrivals from the rates that a policy sees in its planning rounds."""

from __future__ import annotations

import numpy as np
import pytest

from carpool.arrivals.counted import CountedArrivals
from carpool.arrivals.markov import mmpp2
from carpool.arrivals.processes import ArrivalProcess, Poisson, timestamps

BURSTY = mmpp2((10, 120), (0.05, 0.05))


def told(process: ArrivalProcess, rounds: int, least: int = 60) -> CountedArrivals:
    """Return the counted arrivals after ``rounds`` rounds of ten seconds."""
    times = timestamps(process, 10.0 * rounds, seed=1)
    counts = np.histogram(times, bins=np.arange(rounds + 1) * 10.0)[0]
    counted = CountedArrivals(least)
    counted.note(0.0, process.mean_rate)
    for number, count in enumerate(counts.tolist(), 1):
        counted.note(10.0 * number, count / 10.0)
    return counted


def test_bursty_arrivals_are_detected() -> None:
    """Bursty arrivals give a bursty process with about the true rates."""
    process = told(BURSTY, 1500).bursty
    assert process is not None
    assert pytest.approx(120, rel=0.2) == process.arriving[1][1]
    assert pytest.approx(65, rel=0.15) == process.mean_rate


def test_poisson_arrivals_are_not_taken_for_bursty() -> None:
    """Poisson arrivals are not taken for bursty ones, even after many rounds."""
    counted = told(Poisson(65.0), 1500)
    assert counted.bursty is None
    assert counted.fit is not None


def test_no_fit_before_minimum_number_of_intervals() -> None:
    """There is no fit before the least number of intervals."""
    assert told(BURSTY, 59).fit is None


def test_irregular_rounds_are_ignored() -> None:
    """Rounds between the regular ones are ignored, and the next regular one counts."""
    counted = CountedArrivals(30)
    for number in range(40):
        counted.note(10.0 * number, 5.0)
        counted.note(10.0 * number + 3.0, 500.0)
        counted.note(10.0 * number + 3.0, 500.0)
    assert counted.fit is not None
    assert counted.fit.process == Poisson(5.0)


def test_counting_continues_after_missing_rounds() -> None:
    """Counting continues after missing rounds."""
    counted = CountedArrivals(30)
    times = [*range(0, 200, 10), *range(300, 500, 10)]
    for now_s in times:
        counted.note(float(now_s), 5.0)
    assert counted.fit is not None
