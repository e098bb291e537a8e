"""The rate-level mode skips intervals that resemble simulated ones, at little loss of accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import simulator as benchmark
from carpool.arrivals.processes import Poisson, Trace
from scaler.planning.cost import Prices
from simulator.metrics import measured
from simulator.settings import Settings
from simulator.simulation import Simulation
from tests.effort import scaled
from tests.simulator.load import Scripted, function, linear, plan
from tests.simulator.load import scenario as of

if TYPE_CHECKING:
    from carpool.plan import Plan
    from carpool.scaling import FunctionLoad
    from scaler.scenarios.scenario import Scenario

pytestmark = pytest.mark.xdist_group("rate level")  # one worker computes both modes

BOTH_GIVE = (
    *("mean_batch", "cost", "cost_per_1k", "cpu_core_s", "rps_per_resource", "idle_core_s"),
)


def following(_: float, load: FunctionLoad) -> Plan:
    """Return a plan with as many instances as the rate needs, in batches of 4."""
    wanted = max(1, round(load.rate_rps / 20))
    if load.plan and load.plan.classes[0].replicas == wanted:
        return load.plan
    return plan("f", load.plan.version + 1 if load.plan else 1, wanted, 4, 0.1)


def waves() -> Scenario:
    """Return up to two hours of a rate that varies between 10 and 100 requests a second."""
    rates = (10.0, 40.0, 100.0, 60.0) * max(2, scaled(6))
    trace = Trace(tuple(300.0 * n for n in range(len(rates))), rates, 300.0 * len(rates))
    model = linear(0.05, 0.02, load_s=2.0)
    prices = Prices(cpu_core_s=1e-4, call=1e-6)
    return of(function(trace, model, slo_s=0.5), horizon_s=trace.end_s, prices=prices)


def both(scenario: Scenario) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return the metrics of both modes and the number of requests simulated by the faster one."""
    whole = Simulation(scenario, Scripted(following), Settings(interval_s=10.0)).run()
    quick = Simulation(
        scenario, Scripted(following), Settings(interval_s=10.0, rate_level=True)
    ).run()
    return measured(whole), measured(quick), quick.simulated


@pytest.fixture(scope="module")
def modes() -> tuple[dict[str, Any], dict[str, Any], int]:
    """Run both modes on the same load."""
    return both(waves())


@pytest.mark.slow
def test_most_requests_are_not_simulated(modes: tuple[dict[str, Any], dict[str, Any], int]) -> None:
    """Fewer than half of the requests are simulated, but all are counted."""
    whole, quick, simulated = modes
    assert whole["requests"] == quick["requests"]
    assert quick["requests"] == quick["done"] + quick["expired"] + quick["refused"]
    assert simulated < 0.5 * quick["requests"]


@pytest.mark.slow
@pytest.mark.parametrize("name", BOTH_GIVE)
def test_metrics_of_both_modes_agree(
    modes: tuple[dict[str, Any], dict[str, Any], int], name: str
) -> None:
    """The metrics of both modes are within 3 %."""
    whole, quick, _ = modes
    assert pytest.approx(whole[name], rel=0.03) == quick[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mean", "p50", "p90", "p95", "p99"])
def test_latencies_of_both_modes_agree(
    modes: tuple[dict[str, Any], dict[str, Any], int], name: str
) -> None:
    """The latencies of both modes are within 3 %."""
    whole, quick, _ = modes
    assert pytest.approx(whole["latency_ms"][name], rel=0.03) == quick["latency_ms"][name]


def test_every_request_is_simulated_at_low_rate() -> None:
    """At a low rate every request is simulated, as cold starts are rare events."""
    seldom = of(function(Poisson(0.5), linear(0.05)), horizon_s=2000.0)
    whole, quick, simulated = both(seldom)
    assert quick["requests"] == simulated
    for result in (whole, quick):
        result.pop("planning_ms")
        result.pop("functions")
    assert whole == quick


@pytest.mark.parametrize("flag", ["--compare", "--days"])
def test_benchmark_refuses_less_than_an_hour(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The benchmark refuses less than an hour, as its rates are those of hours."""
    with pytest.raises(SystemExit):
        benchmark.main([flag, "0.01"])
    assert "at least an hour" in capsys.readouterr().err
