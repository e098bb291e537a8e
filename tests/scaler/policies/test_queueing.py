"""Batches on a limited number of instances."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from carpool.arrivals.markov import mmpp2
from carpool.arrivals.processes import Poisson
from scaler.policies.batch.batch_law import BatchLaw, Service
from scaler.policies.batch.queueing import LimitedInstances, least_instances

if TYPE_CHECKING:
    from carpool.arrivals.map_counts import Markovian

BURSTY = mmpp2((10, 120), (0.05, 0.05))
SERVICE = Service.fixed([0.05 + 0.01 * k for k in range(1, 9)])


def crowd(process: Markovian, size: int = 8, window_s: float = 0.1) -> LimitedInstances:
    """Return batches that take 50 ms plus 10 ms per request, on limited instances."""
    return LimitedInstances(process, BatchLaw(process, size, window_s), SERVICE)


@pytest.mark.parametrize("process", [Poisson(80.0), BURSTY])
def test_batches_do_not_wait_with_many_instances(process: Markovian) -> None:
    """With many instances there is no waiting for a free one."""
    law = BatchLaw(process, 8, 0.1)
    expected = law.late([0.2], SERVICE)[0]
    assert pytest.approx(expected, abs=1e-9) == crowd(process).late(0.2, 200)


@pytest.mark.parametrize("process", [Poisson(80.0), BURSTY])
def test_late_share_falls_with_more_instances(process: Markovian) -> None:
    """The late share falls with more instances."""
    found = [crowd(process).late(0.25, instances) for instances in range(1, 12)]
    assert sorted(found, reverse=True) == found
    assert found[-1] < 0.02 < found[0]


def test_least_number_of_instances_is_minimal() -> None:
    """The least number of instances suffices, and one less does not."""
    busy = crowd(BURSTY)
    least = least_instances(busy, 0.22, 0.01)
    assert busy.late(0.22, least) <= 0.01 < busy.late(0.22, least - 1)


def test_no_search_if_full_batches_alone_are_late() -> None:
    """If full batches alone are late, the number is one at which hardly any batch waits."""
    busy = crowd(Poisson(400.0))
    found = least_instances(busy, 0.12, 0.01)
    assert busy.busiest < found < 3 * busy.busiest


def test_the_busiest_phase_counts() -> None:
    """The busiest phase counts, not the mean: phases of 120 requests/s within a mean of 65."""
    alone = crowd(Poisson(120.0)).busiest
    assert pytest.approx(alone, rel=0.02) == crowd(BURSTY).busiest
    assert crowd(Poisson(65.0)).busiest < 0.7 * alone


def test_short_phases_count_with_mean_rate() -> None:
    """Phases shorter than an execution count with their mean rate."""
    flickering = mmpp2((10, 120), (1e4, 1e4))
    assert pytest.approx(crowd(Poisson(65.0)).busiest, rel=0.02) == crowd(flickering).busiest


@pytest.mark.parametrize("rate", [0.0, 1e-4, 1e5])
def test_extreme_rates(rate: float) -> None:
    """Extreme rates give a plausible number of instances."""
    found = least_instances(crowd(Poisson(rate), window_s=0.05), 0.3, 0.01)
    assert 1 <= found < 3000
    assert math.isfinite(crowd(Poisson(rate)).late(0.3, found))


def test_mean_wait_agrees_with_m_d_1_queue() -> None:
    """The mean wait of single requests on one instance is that of an M/D/1 queue, within 1 %."""
    rate, exec_s = 6.0, 0.1
    alone = LimitedInstances(
        Poisson(rate), BatchLaw(Poisson(rate), 1, 0.0), Service.fixed([exec_s])
    )
    mean_s = float(alone.delayed(1).mean_s()[0]) - exec_s
    busy = rate * exec_s
    assert pytest.approx(busy * exec_s / (2 * (1 - busy)), rel=0.01) == mean_s
