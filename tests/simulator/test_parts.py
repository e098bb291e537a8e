"""The parts of a simulation, one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from carpool.arrivals.processes import Poisson, timestamps
from carpool.errors import ConfigError
from carpool.latency import Configuration
from carpool.latency.coefficients import Coefficients, GpuCoefficients
from carpool.latency.linear import Linear
from carpool.latency.table import Table
from carpool.plan import InstanceClass, Plan, Route
from scaler.control.sidecar_config import interim
from scaler.planning.cost import PayPerUse, Prices
from simulator.arrivals import GeneratedArrivals, merged
from simulator.event_queue import EventQueue
from simulator.execution import Executions
from simulator.latency_histogram import Latencies

if TYPE_CHECKING:
    from carpool.latency import LatencyModel


def executions(model: LatencyModel, noise: float = 0.0) -> Executions:
    """Return executions of that model at a price of 2 per core second."""
    return Executions(model, PayPerUse(Prices(cpu_core_s=2.0)), noise, "seed")


def test_calls_run_in_order_of_time_then_of_scheduling() -> None:
    """Calls run in order of time, then of scheduling, including those scheduled during the run."""
    events, made = EventQueue(), []

    def call(now: float, name: str) -> None:
        made.append((now, name))
        if name == "first":
            events.at(1.5, call, "noted meanwhile")

    for when, name in ((2.0, "second"), (1.0, "first"), (2.0, "third"), (9.0, "too late")):
        events.at(when, call, name)
    events.run(2.0)
    expected = [(1.0, "first"), (1.5, "noted meanwhile"), (2.0, "second"), (2.0, "third")]
    assert expected == made


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99, 1.0])
def test_quantiles_are_within_tolerance(share: float) -> None:
    """Quantiles are within 0.3 % of the exact ones."""
    seconds = np.random.default_rng(1).lognormal(-3, 1, 20_000)
    latencies = Latencies()
    latencies.add(seconds[:5_000].tolist())
    latencies.add(seconds[5_000:].tolist())
    assert pytest.approx(np.quantile(seconds, share), rel=0.003) == latencies.quantile_s(share)
    assert pytest.approx(seconds.mean()) == latencies.mean_s


def test_latencies_of_interval_are_merged_with_weight() -> None:
    """Latencies of one interval can be merged with the weight of three."""
    one, three = Latencies(), Latencies()
    one.add([0.1, 0.2, 0.4])
    three.merge(one, 3.0)
    assert pytest.approx(9.0) == three.count
    assert one.quantile_s(0.5) == three.quantile_s(0.5)


def test_quantile_and_mean_are_none_without_latencies() -> None:
    """Without latencies, quantile and mean are None."""
    assert None is Latencies().quantile_s(0.5)
    assert None is Latencies().mean_s
    assert ([], []) == Latencies().curve()


def test_execution_time_and_cost_follow_model_and_billing_rule() -> None:
    """Two requests at 50 ms plus 20 ms each on half a core take 90 ms and cost accordingly."""
    execution = executions(Linear(0.05, 0.02)).of(InstanceClass("a", 0.5, 4, 1))
    assert pytest.approx((0.09, 0.09 * 0.5 * 2.0)) == execution.run(2)


def test_unknown_batch_size_is_padded_or_interpolated() -> None:
    """Batch sizes that the table lacks are padded to the next larger one, or interpolated."""
    table = Table({Configuration(2, 1.0, 0.0): 0.2, Configuration(8, 1.0, 0.0): 0.5})
    execution = executions(table).of(InstanceClass("a", 1.0, 8, 1))
    assert pytest.approx(0.2) == execution.run(1)[0]
    assert pytest.approx(0.25) == execution.run(3)[0]


def test_class_unknown_to_model_is_refused() -> None:
    """A class that the model does not know is an error that names it."""
    table = Table({Configuration(2, 1.0, 0.0): 0.2})
    with pytest.raises(ConfigError, match="class big of the plan"):
        executions(table).of(InstanceClass("big", 1.0, 4, 1))


def test_execution_times_follow_model_distribution() -> None:
    """Execution times on a share of a GPU follow the model's distribution."""
    model = Coefficients(None, GpuCoefficients(0.001, 0.01, 0.002, 24))
    share = 100 * 6 / 24
    execution = executions(model).of(InstanceClass("a", 2.0, 4, 1, gpu=share))
    times = [execution.run(4)[0] for _ in range(20_000)]
    for quantile in (0.5, 0.9, 0.95):
        expected = model.predict(4, 2.0, share, quantile)
        assert pytest.approx(expected, rel=0.01) == np.quantile(times, quantile)


def test_noise_keeps_the_mean() -> None:
    """Noise is lognormal, with the given deviation of the logarithm and an unchanged mean."""
    execution = executions(Linear(0.1, 0.0), noise=0.3).of(InstanceClass("a", 1.0, 4, 1))
    times = [execution.run(1)[0] for _ in range(20_000)]
    assert pytest.approx(0.1, rel=0.01) == np.mean(times)
    assert pytest.approx(0.3, rel=0.03) == np.std(np.log(times))


def test_arrivals_in_stretches_equal_those_of_whole() -> None:
    """Arrivals taken in stretches equal those of the whole, and each application has its own."""
    processes = [Poisson(50.0), Poisson(50.0)]
    arrivals = GeneratedArrivals(processes, 30.0, seed=7)
    stretches = [arrivals.take(end) for end in (0.001, 7.0, 7.0, 30.0, 40.0)]
    for number, process in enumerate(processes):
        together = np.concatenate([stretch[number] for stretch in stretches])
        assert np.array_equal(timestamps(process, 30.0, (7, 1, number)), together)
    assert not np.array_equal(stretches[1][0], stretches[1][1])


def test_merged_arrivals_are_in_order() -> None:
    """Merged arrivals are in order of time, then of application."""
    times = [np.array([1.0, 3.0]), np.array([1.0, 2.0])]
    assert ([1.0, 1.0, 2.0, 3.0], [0, 1, 1, 0]) == merged(times)


def test_old_instances_get_share_in_proportion_to_capacity() -> None:
    """Old instances at 30/s beside new ones at 60/s get shares in proportion to their capacity.

    If the rate of the old ones is unknown, the batch sizes of both count.
    """
    new = InstanceClass("new", 1.0, 4, 3, rate_high=60.0)
    old = InstanceClass("old", 1.0, 4, 0, rate_high=30.0)
    plan = Plan("f", 2, "test", (new,), (Route("*", {"new": 1.0}, 0.1),))
    weights = interim(plan, [old, old]).routes[0].weights
    assert {"new": pytest.approx(0.75), "old": pytest.approx(0.25)} == weights
    unknown = replace(old, batch_size=6, rate_high=None)
    weights = interim(plan, [unknown, unknown]).routes[0].weights
    assert {"new": pytest.approx(0.5), "old": pytest.approx(0.5)} == weights
    assert plan is interim(plan, [])


def test_calls_of_one_object_can_be_postponed() -> None:
    """The calls of one object can be postponed, while those of others keep their times."""

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def call(self, now: float) -> None:
            made.append((now, self.name))

    events, made = EventQueue(), list[tuple[float, str]]()
    one, other = Named("one"), Named("other")
    for when in (1.0, 3.0):
        events.at(when, one.call)
        events.at(when + 1, other.call)
    events.postpone(one, 2.5)
    events.run(10.0)
    assert [(2.0, "other"), (3.5, "one"), (4.0, "other"), (5.5, "one")] == made
