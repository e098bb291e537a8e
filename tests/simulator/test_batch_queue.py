"""The simulation by which the law of busy instances is judged: `benchmarks.batch_queue`."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.batch_cases import (
    SHARES,
    Workload,
    seconds_by_size,
    simulated,
    stratified_phases,
)
from benchmarks.batch_queue import Batching, Histogram, latency_counts
from carpool.arrivals.markov import mmpp2
from carpool.arrivals.processes import Poisson
from tests.effort import loosened, scaled
from tests.scaler.m_d_1 import in_time
from tests.tools import require_tool

RATES, SWITCH = (15.0, 60.0), (0.2, 0.2)


@pytest.fixture(autouse=True, scope="module")
def _compiler() -> None:
    require_tool("cc")


@pytest.mark.parametrize("load", [0.5, 0.8, 0.9])
def test_single_requests_are_an_m_d_1_queue(load: float) -> None:
    """The share of single requests in time at one instance is Erlang's, within four errors."""
    exec_s, histogram = 0.1, Histogram(0.001)
    limits_s = np.array([0.0, 0.05, 0.15, 0.4, 0.8])
    rates, ends_s = (load / exec_s, load / exec_s), np.array([scaled(1_000_000) * exec_s / load])
    runs = []
    for seed in range(16):
        counts = latency_counts(
            Batching(1, 0.0, [exec_s], 1), rates, ends_s, histogram, (seed,), 0.02 * ends_s[0]
        )
        up_to = np.cumsum(counts) / counts.sum()
        runs.append(up_to[np.round((limits_s + exec_s) / histogram.bin_s).astype(int)])
    # Those in the bin that begins at a limit are counted too.
    wanted = [in_time(load / exec_s, exec_s, at + histogram.bin_s) for at in limits_s.tolist()]
    error = np.std(runs, axis=0, ddof=1) / math.sqrt(len(runs))
    assert (abs(np.mean(runs, axis=0) - wanted) <= 4 * error + 1e-4).all()


@pytest.mark.parametrize(
    ("workload", "size", "window_s", "instances"),
    [
        (Workload("Poisson", Poisson(30.0)), 4, 0.05, 1),
        (Workload("Poisson", Poisson(65.0)), 4, 0.05, 2),
        (Workload("MMPP", mmpp2(RATES, SWITCH), RATES, SWITCH), 8, 0.1, 2),
    ],
    ids=["one", "two", "bursty"],
)
def test_latencies_are_those_of_the_simulator(
    workload: Workload, size: int, window_s: float, instances: int
) -> None:
    """Quantiles are those of Carpool's own simulator, within 2 %."""
    seen = simulated(workload, size, window_s, scaled(100_000), 1, instances)
    batching = Batching(size, window_s, seconds_by_size(size), instances)
    span_s = 2_000_000 / workload.process.mean_rate
    ends_s = np.array([span_s])
    if workload.switch:
        lengths_s = stratified_phases(workload.switch, span_s, np.random.default_rng(1))
        ends_s = np.cumsum(lengths_s.ravel())
    rates = workload.rates or (workload.process.mean_rate,) * 2
    histogram = Histogram(1e-4)
    counts = latency_counts(batching, rates, ends_s, histogram, (1,))
    found = histogram.quantiles(counts, SHARES).tolist()
    assert found == pytest.approx([seen.quantile_s(at) for at in SHARES], rel=loosened(0.02))


def test_too_many_requests_in_a_batch_are_refused() -> None:
    """A size beyond the program's fixed one is an error."""
    batching = Batching(2000, 0.0, [0.1] * 2000, 1)
    with pytest.raises(ValueError, match="2000 requests in a batch"):
        latency_counts(batching, (1.0, 1.0), np.array([1.0]), Histogram(0.1), (1,))
