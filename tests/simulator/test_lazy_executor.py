"""Functions with the executor `lazy` in a simulated scenario."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.staged import PendingArrival, lazily
from carpool.errors import ConfigError
from carpool.lazy_batching.program import Node, Program, most_batches
from carpool.lazy_batching.rules import Rules
from scaler.policy_choice import executed
from scaler.scenarios.scenario_file import read_scenario
from tests.simulator.load import At, Constant, Every, function, linear, run, scenario

if TYPE_CHECKING:
    from scaler.scenarios.scenario import Function

FILE = Path(__file__).parents[2] / "examples" / "scenarios" / "lazybatching.yaml"


def lazy(times: tuple[float, ...], base_s: float, per_item_s: float, stages: int) -> Function:
    """Return a function with the executor `lazy` and these arrivals."""
    whole = function(At(times), linear(base_s, per_item_s))
    return dataclasses.replace(whole, executor="lazy", stages=stages)


def simulated(of: Function, batch: int = 8, replicas: int = 1, **settings: Any) -> dict[str, Any]:
    """Return the metrics of a run on ``replicas`` instances."""
    policy = Constant(Constant.Params(replicas=replicas, batch=batch))
    return run(scenario(of, horizon_s=20.0), policy, **settings)


def test_late_arrival_catches_up_and_both_end_together() -> None:
    """With four stages in 1 s, an arrival at 0.1 s catches up on one and both end together."""
    of = lazy((0.0, 0.1), 1.0, 0.0, 4)
    result = simulated(of)
    whole = simulated(dataclasses.replace(of, executor="graph"))

    assert pytest.approx((1250 + 1150) / 2) == result["latency_ms"]["mean"]
    assert pytest.approx((1000 + 1900) / 2) == whole["latency_ms"]["mean"]
    assert (2.0, 1.0) == (result["mean_batch"], whole["mean_batch"])
    assert pytest.approx(20 - 1.25) == result["idle_core_s"]


@pytest.mark.parametrize("rate_rps", [2, 8, 16])
def test_simulated_latency_matches_live_scheduler(rate_rps: float) -> None:
    """An instance behind the sidecar's queue gives the same latency as the live scheduler alone."""
    draw, now, times = random.Random(3), 0.0, []
    while now < 19:
        now += draw.expovariate(rate_rps)
        times.append(now)
    result = simulated(lazy(tuple(times), 0.2, 0.01, 5), batch=64)
    program = Program("m", [Node([(0.2 + 0.01 * n) / 5 for n in range(1, 65)])] * 5)
    coming = [PendingArrival(at, program, 1e6) for at in times]
    lazily(coming, Rules())

    assert len(times) <= result["requests"] + 1
    expected = 1000 * sum(each.latency_s for each in coming) / len(coming)
    # Rounding may tip a newcomer for whom joining and coming behind are equally good.
    assert pytest.approx(expected, rel=0.05) == result["latency_ms"]["mean"]


def test_requests_beyond_instance_limit_wait_in_sidecar_queue() -> None:
    """Requests beyond an instance's limit wait in the sidecar's queue, and all complete."""
    of = lazy(Every(0.002, 4.0).times, 0.1, 0.02, 4)
    one, three = simulated(of, batch=4), simulated(of, batch=4, replicas=3)

    assert 6 == most_batches(4)
    assert 2000 == one["done"] == three["done"]
    assert one["latency_ms"]["mean"] > 2.5 * three["latency_ms"]["mean"]


def test_executor_is_from_function_or_policy_entry(tmp_path: Path) -> None:
    """The executor is `graph` with eight stages by default, and a policy entry overrides it."""
    read = read_scenario(FILE)
    file = tmp_path / "scenario.yaml"
    text = FILE.read_text(encoding="utf-8")
    file.write_text(text.replace("stages: 8", "executor: lazy", 1), encoding="utf-8")
    named = read_scenario(file).functions

    assert ["graph"] * 3 == [each.executor for each in read.functions]
    assert ("lazy", 8) == (named[0].executor, named[0].stages)
    assert ["lazy"] * 3 == [each.executor for each in executed("lazybatching", read).functions]
    assert read is executed("window", read)


def test_unknown_executor_is_error(tmp_path: Path) -> None:
    """An unknown executor is an error with the file and line or the entry's name."""
    file = tmp_path / "scenario.yaml"
    text = FILE.read_text(encoding="utf-8")
    file.write_text(text.replace("stages: 8", "executor: eager", 1), encoding="utf-8")
    with pytest.raises(ConfigError, match="graph or lazy"):
        read_scenario(file)
    file.write_text(text.replace("executor: lazy", "executor: eager"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"policies\.lazybatching\.executor"):
        executed("lazybatching", read_scenario(file))


@pytest.mark.slow
def test_lazybatching_has_lowest_mean_latency_in_example() -> None:
    """In the example, `lazybatching` has the lowest mean latency at low and medium load."""
    read = dataclasses.replace(read_scenario(FILE), horizon_s=20.0)
    policies: dict[str, dict[str, Any]] = {}
    for name in ("window", "at-once", "lazybatching"):
        wait_s = 0.02 if name == "window" else 0.0
        policy = Constant(Constant.Params(batch=32, wait_s=wait_s))
        policies[name] = run(executed(name, read), policy)["functions"]
    mean_ms = {
        name: {each: found[each]["latency_ms"]["mean"] for each in found}
        for name, found in policies.items()
    }

    for each in ("quiet", "usual"):
        assert mean_ms["lazybatching"][each] < mean_ms["at-once"][each] < mean_ms["window"][each]
