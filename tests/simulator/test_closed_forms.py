"""A simulation agrees with exact results for queues, batch laws and regular arrivals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from carpool.arrivals.markov import mmpp2
from carpool.arrivals.processes import Poisson
from scaler.scenarios.scenario import App
from tests.effort import loosened, scaled
from tests.simulator.load import FOREVER_S, Constant, Every, Scripted, function, linear, plan, run
from tests.simulator.load import scenario as of

if TYPE_CHECKING:
    from carpool.arrivals.processes import ArrivalProcess

PLENTY = 40  # instances, where one is always to be free


def batching(
    arrivals: ArrivalProcess,
    batch: int,
    wait_s: float,
    base_s: float,
    per_item_s: float,
    requests: int = 60_000,
) -> dict[str, Any]:
    """Simulate a window of this length and size with as many instances as needed."""
    horizon_s = scaled(requests) / arrivals.mean_rate
    policy = Constant(Constant.Params(PLENTY, batch, wait_s))
    scenario = of(function(arrivals, linear(base_s, per_item_s)), horizon_s=horizon_s)
    return run(scenario, policy, interval_s=1000.0)


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.8])
def test_single_server_with_constant_times_matches_m_d_1(busy: float) -> None:
    """Mean wait is that of M/D/1: utilization times execution time over twice the idle share."""
    exec_s = 0.1
    scenario = of(
        function(Poisson(busy / exec_s), linear(exec_s)),
        horizon_s=max(12_000, scaled(60_000)) * exec_s,
    )
    result = run(scenario, Constant(Constant.Params()), interval_s=1000.0)
    expected_s = busy * exec_s / (2 * (1 - busy))
    waited_s = result["latency_ms"]["mean"] / 1000 - exec_s
    assert pytest.approx(expected_s, rel=loosened(0.05)) == waited_s


def test_batch_holds_arrivals_during_previous_one() -> None:
    """A batch holds the arrivals during the previous one, or the first arrival after it."""
    rate, exec_s = 50.0, 0.06
    scenario = of(function(Poisson(rate), linear(exec_s)), horizon_s=scaled(1000))
    result = run(scenario, Constant(Constant.Params(1, 64)), interval_s=1000.0)
    came, alone = rate * exec_s, math.exp(-rate * exec_s)
    waited_s = result["latency_ms"]["mean"] / 1000 - exec_s
    assert pytest.approx(came + alone, rel=loosened(0.01)) == result["mean_batch"]
    assert pytest.approx(came * exec_s / 2 / (came + alone), rel=loosened(0.01)) == waited_s


def test_overloaded_server_runs_full_batches_without_pause() -> None:
    """An overloaded server runs full batches without pause; the rest is refused or expires."""
    batch, exec_s, horizon_s = 8, 0.1, 200.0
    heavy = function(Poisson(200.0), linear(exec_s), slo_s=0.5)
    result = run(of(heavy, horizon_s=horizon_s), Constant(Constant.Params(1, batch)))
    assert pytest.approx(batch, rel=0.005) == result["mean_batch"]
    assert pytest.approx(batch / exec_s * horizon_s, rel=0.01) == result["done"]
    assert result["requests"] == result["done"] + result["expired"] + result["refused"]


@pytest.mark.parametrize(
    ("rate", "mean_batch", "mean_wait_s", "median_s", "p95_s"),
    [(10.0, 2.78198, 0.10865, 0.2281, 0.3100), (20.0, 3.65200, 0.06961, 0.1824, 0.3100)],
)
def test_windows_match_exact_law_for_poisson_arrivals(
    rate: float, mean_batch: float, mean_wait_s: float, median_s: float, p95_s: float
) -> None:
    """Batches of up to 4 in 0.2 s, at 0.05 s plus 0.02 s per request, match the exact law."""
    result = batching(Poisson(rate), 4, 0.2, 0.05, 0.02)
    latency = result["latency_ms"]
    assert pytest.approx(mean_batch, rel=loosened(0.01)) == result["mean_batch"]
    assert pytest.approx(median_s * 1000, rel=loosened(0.01)) == latency["p50"]
    assert pytest.approx(p95_s * 1000, rel=loosened(0.01)) == latency["p95"]
    no_service = batching(Poisson(rate), 4, 0.2, 1e-9, 0.0)
    assert pytest.approx(mean_wait_s * 1000, rel=loosened(0.02)) == no_service["latency_ms"]["mean"]


def test_unlimited_window_holds_expected_number_of_requests() -> None:
    """A window of T at R requests a second holds 1 + R T requests on average."""
    result = batching(Poisson(10.0), 64, 0.2, 0.01, 0.0)
    assert pytest.approx(1 + 10.0 * 0.2, rel=loosened(0.01)) == result["mean_batch"]


@pytest.mark.parametrize(("batch", "wait_s", "mean_batch"), [(8, 0.1, 3.8740), (16, 0.3, 8.0192)])
def test_windows_match_exact_law_for_bursty_arrivals(
    batch: int, wait_s: float, mean_batch: float
) -> None:
    """MMPP(2) arrivals at 5 and 50 a second match the exact law of Markovian arrival processes."""
    bursts = mmpp2(rates=(5.0, 50.0), switch=(0.5, 1.0))
    result = batching(bursts, batch, wait_s, 0.05, 0.01, requests=120_000)
    assert pytest.approx(mean_batch, rel=loosened(0.015)) == result["mean_batch"]


def test_shared_batch_waits_match_closed_form() -> None:
    """With waits of 0.1 and 0.3 s for two applications, a batch waits 0.18428 s on average."""
    apps = [App("soon", FOREVER_S, Poisson(5.0)), App("later", FOREVER_S, Poisson(10.0))]
    waits = {"soon": 0.1, "later": 0.3}
    policy = Scripted(lambda _, load: load.plan or plan("f", 1, PLENTY, 64, waits=waits))
    result = run(
        of(function(apps, linear(0.01)), horizon_s=scaled(4000)), policy, interval_s=1000.0
    )
    assert pytest.approx(1 + 15 * 0.18428, rel=loosened(0.01)) == result["mean_batch"]


def test_windows_of_regular_arrivals_have_exact_waits() -> None:
    """Windows of 35 ms hold four arrivals 10 ms apart, which wait 35, 25, 15 and 5 ms."""
    result = batching_regular(batch=10)
    assert pytest.approx(4.0) == result["mean_batch"]
    assert pytest.approx(20.0 + 1.0) == result["latency_ms"]["mean"]


def test_full_batches_of_regular_arrivals_have_exact_waits() -> None:
    """With arrivals every 10 ms in batches of 2, the first waits 10 ms and the second 0 ms."""
    result = batching_regular(batch=2)
    assert pytest.approx(2.0) == result["mean_batch"]
    assert pytest.approx(5.0 + 1.0) == result["latency_ms"]["mean"]
    assert pytest.approx(11.0, rel=0.002) == result["latency_ms"]["p99"]


def batching_regular(batch: int) -> dict[str, Any]:
    """Simulate 400 requests 10 ms apart, with 1 ms to execute a batch."""
    scenario = of(function(Every(0.01, 4.0), linear(0.001)), horizon_s=5.0)
    return run(scenario, Constant(Constant.Params(2, batch, 0.035)))
