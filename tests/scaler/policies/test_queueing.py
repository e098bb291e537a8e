"""Batches on a limited number of instances."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from scaler.arrivals.markov import mmpp2
from scaler.arrivals.processes import Poisson
from scaler.policies.batch.batch_law import BatchLaw, Service
from scaler.policies.batch.queueing import LimitedInstances, least_instances

if TYPE_CHECKING:
    from scaler.arrivals.map_counts import Markovian

BURSTY = mmpp2((10, 120), (0.05, 0.05))
SERVICE = Service.fixed([0.05 + 0.01 * k for k in range(1, 9)])


def crowd(process: Markovian, size: int = 8, window_s: float = 0.1) -> LimitedInstances:
    """Batches that take 50 ms and 10 ms for each request."""
    return LimitedInstances(process, BatchLaw(process, size, window_s), SERVICE)


@pytest.mark.parametrize("process", [Poisson(80.0), BURSTY])
def test_many_instances_are_as_good_as_one_for_each_batch(process: Markovian) -> None:
    """Nothing is left of the wait for one."""
    law = BatchLaw(process, 8, 0.1)
    expected = law.late([0.2], SERVICE)[0]
    assert pytest.approx(expected, abs=1e-9) == crowd(process).late(0.2, 200)


@pytest.mark.parametrize("process", [Poisson(80.0), BURSTY])
def test_more_instances_make_fewer_late(process: Markovian) -> None:
    """All are late in a phase that cannot be kept up with."""
    found = [crowd(process).late(0.25, instances) for instances in range(1, 12)]
    assert sorted(found, reverse=True) == found
    assert found[-1] < 0.02 < found[0]


def test_the_least_is_enough_and_one_fewer_is_not() -> None:
    """By the same measure."""
    busy = crowd(BURSTY)
    least = least_instances(busy, 0.22, 0.01)
    assert busy.late(0.22, least) <= 0.01 < busy.late(0.22, least - 1)
    assert 3 == least_instances(busy, 0.22, 0.01, most=3)


def test_where_batches_alone_are_late_no_number_is_searched() -> None:
    """A full batch of 130 ms is never within 120: so many that hardly one waits will do."""
    busy = crowd(Poisson(400.0))
    found = least_instances(busy, 0.12, 0.01)
    assert busy.busiest < found < 3 * busy.busiest
    assert 2 == least_instances(busy, 0.12, 0.01, most=2)


def test_the_busiest_phase_counts() -> None:
    """A mean of 65 requests/s hides phases of 120."""
    alone = crowd(Poisson(120.0)).busiest
    assert pytest.approx(alone, rel=0.02) == crowd(BURSTY).busiest
    assert crowd(Poisson(65.0)).busiest < 0.7 * alone


def test_phases_shorter_than_an_execution_do_not() -> None:
    """What counts is the rate while an execution lasts."""
    flickering = mmpp2((10, 120), (1e4, 1e4))
    assert pytest.approx(crowd(Poisson(65.0)).busiest, rel=0.02) == crowd(flickering).busiest


@pytest.mark.parametrize("rate", [0.0, 1e-4, 1e5])
def test_extreme_rates(rate: float) -> None:
    """A number of instances that is one."""
    found = least_instances(crowd(Poisson(rate), window_s=0.05), 0.3, 0.01)
    assert 1 <= found < 3000
    assert math.isfinite(crowd(Poisson(rate)).late(0.3, found))


def test_an_m_d_1_queue_is_nearly_met() -> None:
    """Single requests on one instance: the mean wait is half that of exponential times."""
    rate, exec_s = 6.0, 0.1
    alone = LimitedInstances(
        Poisson(rate), BatchLaw(Poisson(rate), 1, 0.0), Service.fixed([exec_s])
    )
    mean_s = float(alone.delayed(1).mean_s()[0]) - exec_s
    busy = rate * exec_s
    assert pytest.approx(busy * exec_s / (2 * (1 - busy)), rel=0.01) == mean_s
