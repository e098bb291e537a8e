"""Latencies of batches that wait for an instance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from carpool.arrivals.markov import MarkovArrivals, mmpp2
from carpool.arrivals.processes import Poisson, timestamps
from scaler.policies.batch.batch_law import BatchLaw, Service
from scaler.policies.batch.parallel_arrivals import parallel_arrivals
from scaler.policies.batch.queueing import LimitedInstances
from scaler.policies.batch.replay import replayed
from tests.effort import scaled
from tests.scaler.batch_starts import latencies
from tests.scaler.m_d_1 import in_time

if TYPE_CHECKING:
    from carpool.arrivals.map_counts import Markovian
    from scaler.policies.batch.busy_law import BusyLaw
    from scaler.policies.batch.single_law import SingleLaw

SHARES = (0.5, 0.95, 0.99)
RUNS = 8


def law(
    process: Markovian, size: int, window_s: float, seconds: list[float], instances: int = 1
) -> BusyLaw | SingleLaw:
    """Return the law of these batches on a limited number of instances."""
    free = BatchLaw(process, size, window_s)
    found = LimitedInstances(process, free, Service.fixed(seconds)).law(instances)
    assert found is not None
    return found


def linear(size: int, base_s: float, item_s: float) -> list[float]:
    """Return the execution times of batches of 1 to ``size`` requests."""
    return [base_s + item_s * number for number in range(1, size + 1)]


@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
def test_single_requests_are_an_m_d_1_queue(load: float) -> None:
    """Single requests have the quantiles of an M/D/1 queue, within 1 %."""
    exec_s = 0.1
    found = law(Poisson(load / exec_s), 1, 0.0, [exec_s]).quantiles([0.5, 0.9, 0.95])
    for share, latency_s in zip((0.5, 0.9, 0.95), found.tolist(), strict=True):
        low, high = (in_time(load / exec_s, exec_s, at * latency_s - exec_s) for at in (0.99, 1.01))
        assert low <= share <= high or latency_s == pytest.approx(exec_s, rel=1e-3)


def test_law_with_ample_instances_has_no_waiting() -> None:
    """With very short executions, quantiles are those of the law without waiting for instances."""
    process = mmpp2((20, 60), (1.0, 1.0))
    seconds = linear(8, 0.0005, 0.00001)
    free = BatchLaw(process, 8, 0.1).quantiles(SHARES, Service.fixed(seconds))
    assert pytest.approx(free, rel=5e-3) == law(process, 8, 0.1, seconds).quantiles(SHARES)


@pytest.mark.parametrize(
    ("process", "size", "window_s", "seconds", "instances"),
    [
        (Poisson(60.0), 32, 0.5, linear(32, 0.04, 0.01), 1),
        (Poisson(60.0), 4, 0.05, linear(4, 0.02, 0.007), 1),
        (Poisson(120.0), 8, 0.1, linear(8, 0.03, 0.007), 2),
        (Poisson(240.0), 16, 0.2, linear(16, 0.04, 0.0125), 4),
        (Poisson(240.0), 1, 0.0, [0.015], 4),
        (mmpp2((45, 180), (5.0, 5.0)), 8, 0.1, linear(8, 0.04, 0.009), 3),
        (mmpp2((15, 60), (5.0, 5.0)), 8, 0.1, linear(8, 0.04, 0.007), 1),
    ],
)
def test_quantiles_agree_with_simulation(
    process: Markovian, size: int, window_s: float, seconds: list[float], instances: int
) -> None:
    """Quantiles agree with a simulation within 1 % and its sampling error.

    `python -m benchmarks busy-law` has more cases.
    """
    span_s = scaled(125_000) / process.mean_rate
    runs = [
        np.quantile(
            latencies(timestamps(process, span_s, seed), size, window_s, seconds, instances), SHARES
        )
        for seed in range(RUNS)
    ]
    chance = 3 * np.std(runs, axis=0, ddof=1) / math.sqrt(RUNS)
    expected = np.array(law(process, size, window_s, seconds, instances).quantiles(SHARES))
    assert (np.abs(np.mean(runs, axis=0) - expected) <= 0.01 * expected + chance).all()


def test_no_law_for_load_beyond_capacity() -> None:
    """There is no law for a load beyond the capacity of the instances, as its queue never ends."""
    free = BatchLaw(Poisson(100.0), 4, 0.1)
    crowd = LimitedInstances(Poisson(100.0), free, Service.fixed([0.1] * 4))
    assert None is crowd.law(1)
    assert crowd.law(3) is not None


@pytest.mark.parametrize("rate", [1.0, 5.0, 20.0])
def test_a_window_that_just_fits_is_in_time(rate: float) -> None:
    """Requests that wait for the whole window and then execute are not late at that time."""
    found = law(Poisson(rate), 4, 0.09, [0.03] * 4, instances=8)
    on_time, later = found.late([0.12, 0.12 + 1e-6]).tolist()
    assert on_time == pytest.approx(later, abs=1e-6)


@pytest.mark.parametrize("instances", [1, 2, 5])
@pytest.mark.parametrize(("size", "window_s"), [(1, 0.0), (4, 0.05), (8, 0.3)])
def test_replayed_paths_are_those_of_one_request_at_a_time(
    instances: int, size: int, window_s: float
) -> None:
    """Paths in parallel have the latencies of a simulation of one batch after the other."""
    seconds = linear(size, 0.02, 0.0035)
    draw = np.random.default_rng(1)
    process = mmpp2((20.0 * instances, 150.0 * instances), (1.0, 1.0))
    times_s = parallel_arrivals(process, 5, 400, draw).times_s
    batching = BatchLaw(process, size, window_s)
    found = replayed(times_s, batching, Service.fixed(seconds), np.zeros(instances), draw)
    expected = [latencies(path, size, window_s, seconds, instances) for path in times_s]
    assert np.allclose(np.array(expected), found.latencies_s)


@pytest.mark.parametrize(
    "process",
    [
        mmpp2((5.0, 60.0), (0.5, 2.0)),
        mmpp2((5.0, 60.0), (1e-6, 2e-6)),
        MarkovArrivals(((-30.0, 5.0), (1.0, -3.0)), ((10.0, 15.0), (0.5, 1.5))),
    ],
)
def test_parallel_paths_have_the_rate_and_phases_of_the_process(process: MarkovArrivals) -> None:
    """Gaps and phases are those of the process, also where phases last for days."""
    paths = parallel_arrivals(process, 400, 500, np.random.default_rng(1))
    assert paths.times_s[:, -1].mean() == pytest.approx(500 / process.mean_rate, rel=0.05)
    phases = np.bincount(paths.phases.ravel()) / paths.phases.size
    assert phases == pytest.approx(process.at_arrivals(), abs=0.03)
    assert (np.diff(paths.times_s, axis=1) >= 0).all()


def test_random_execution_times_are_sampled() -> None:
    """Execution times of several values have the late share of a long simulation."""
    process, batching = Poisson(60.0), BatchLaw(Poisson(60.0), 4, 0.05)
    seconds = np.array(linear(4, 0.02, 0.005))[:, None] * [0.8, 2.0]
    service = Service(seconds, np.array([0.75, 0.25]))
    found = LimitedInstances(process, batching, service).law(1)
    assert found is not None
    draw = np.random.default_rng(1)
    times_s = parallel_arrivals(process, 64, scaled(20_000), draw).times_s
    seen = replayed(times_s, batching, service, np.zeros(1), draw).latencies_s
    limits_s = [0.085, 0.125, 0.2]  # between the latencies that many batches have exactly
    expected = [float((seen > at).mean()) for at in limits_s]
    # Random execution times are not weighted: the law's sample has 0.7 % within 0.2 points.
    assert expected == pytest.approx(found.late(limits_s).tolist(), rel=0.1, abs=0.0025)


@pytest.mark.parametrize("rate", [7.0, 13.3, 21.7, 28.9])
def test_no_share_is_negative(rate: float) -> None:
    """The share of late requests at long times is 0, not less because of how floats round."""
    found = law(Poisson(rate), 1, 0.0, [0.1], instances=3)
    assert (found.late([0.05, 0.5, 5.0, 500.0]) >= 0).all()
