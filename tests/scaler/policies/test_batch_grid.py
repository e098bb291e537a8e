"""The law for all sizes and windows at once agrees with that for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from carpool.arrivals.markov import mmpp2
from carpool.arrivals.processes import Poisson
from scaler.policies.batch.batch_grid import BatchGrid
from scaler.policies.batch.batch_law import BatchLaw, Service

if TYPE_CHECKING:
    from carpool.arrivals.map_counts import Markovian

BURSTY = mmpp2((5, 50), (0.5, 1.0))
CHOSEN = [(1, 0), (1, 20), (2, 7), (5, 20), (8, 33), (8, 40)]


@pytest.mark.parametrize("process", [Poisson(20.0), BURSTY])
def test_sizes_and_costs(process: Markovian) -> None:
    """Mean sizes, and means of values per batch size, agree with the single law."""
    grid = BatchGrid(process, 8, 0.4, 40)
    costs = np.sqrt(np.arange(1.0, 9.0))
    by_batch = grid.per_batch(costs)
    for size, place in CHOSEN:
        law = BatchLaw(process, size, place * 0.01)
        assert pytest.approx(law.mean_size) == grid.mean_size[size - 1, place]
        assert pytest.approx(law.sizes @ costs[:size]) == by_batch[size - 1, place]


@pytest.mark.parametrize("process", [Poisson(20.0), BURSTY])
def test_late_on_the_grid_is_exact(process: Markovian) -> None:
    """Late shares are exact if objective and execution times are whole steps apart."""
    grid = BatchGrid(process, 8, 0.4, 40)
    service = Service(np.array([[0.02 * k, 0.02 * k + 0.1] for k in range(1, 9)]), np.full(2, 0.5))
    for objective_s in (0.01, 0.12, 0.2, 0.35, 0.7):
        late = grid.late(objective_s, service)
        for size, place in CHOSEN:
            law = BatchLaw(process, size, place * 0.01)
            expected = law.late([objective_s + 1e-12], service)[0]
            assert pytest.approx(expected, abs=2e-5) == late[size - 1, place]


def test_late_share_between_steps_is_conservative() -> None:
    """Between steps, late shares are at least exact and at most those of a step earlier."""
    grid = BatchGrid(BURSTY, 8, 0.4, 40)
    service = Service.fixed([0.03 + 0.0123 * k for k in range(1, 9)])
    late = grid.late(0.25, service)
    for size, place in CHOSEN:
        law = BatchLaw(BURSTY, size, place * 0.01)
        latest, earlier = law.late([0.25, 0.24], service)
        assert latest - 1e-5 <= late[size - 1, place] <= earlier + 1e-5


def test_models_with_fewer_batch_sizes() -> None:
    """Results for a model with fewer batch sizes are the same for these sizes."""
    grid = BatchGrid(BURSTY, 8, 0.4, 40)
    service = Service.fixed([0.1, 0.2, 0.3])
    whole = Service.fixed([0.1, 0.2, 0.3, *[9.0] * 5])
    assert np.array_equal(grid.late(0.35, whole)[:3], grid.late(0.35, service))
    assert (3, 41) == grid.per_batch(np.ones(3)).shape


@pytest.mark.parametrize(
    "process", [Poisson(0.0), Poisson(1e-4), Poisson(1e5), mmpp2((0, 1e5), (1e-3, 10))]
)
def test_extreme_rates_give_finite_results(process: Markovian) -> None:
    """Extreme rates give finite results within their ranges."""
    grid = BatchGrid(process, 32, 0.5, 64)
    late = grid.late(0.2, Service.fixed([0.01 * k for k in range(1, 33)]))
    assert np.isfinite(late).all()
    assert np.isfinite(grid.mean_size).all()
    assert ((late >= 0) & (late <= 1)).all()
    assert (grid.mean_size >= 1 - 1e-9).all()
