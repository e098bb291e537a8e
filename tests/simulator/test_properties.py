"""Invariants of a simulation under arbitrary plans, and reproducibility by seed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.arrivals.markov import mmpp2
from carpool.arrivals.processes import Poisson
from carpool.plan import InstanceClass, Plan, Route
from scaler.planning.placement import Node
from scaler.scenarios.scenario import App
from tests.effort import scaled
from tests.simulator.load import Scripted, function, linear, run
from tests.simulator.load import scenario as of

if TYPE_CHECKING:
    from carpool.scaling import FunctionLoad


def whim(seed: int) -> Scripted:
    """Return a policy with random plans."""
    draw = random.Random(seed)

    def script(now: float, load: FunctionLoad) -> Plan | None:
        if draw.random() < 0.2:
            return None
        names = draw.sample(["a", "b", "c"], draw.randint(1, 3))
        shares = [draw.randint(0, 3) for _ in names]
        shares[0] += 1
        weights = {name: share / sum(shares) for name, share in zip(names, shares, strict=True)}
        classes = [
            InstanceClass(n, draw.choice([0.5, 1.0]), draw.choice([1, 4, 8]), draw.randint(0, 3))
            for n in names
        ]
        waits = [Route("*", weights, draw.choice([0.0, 0.05]))]
        if draw.random() < 0.5:
            waits.append(Route("other", {names[0]: 1.0}, 0.1))
        keep_alive_s = draw.choice([None, 0.0, 1.0, 30.0])
        prewarm_s = draw.choice([0.0, 0.5, 3.0])
        version = round(1e6 * now) + draw.randint(1, 9)
        return Plan(
            load.name,
            version,
            "whim",
            tuple(classes),
            tuple(waits),
            prewarm_s=prewarm_s,
            keep_alive_s=keep_alive_s,
        )

    return Scripted(script)


def eventful(seed: int, plans: int) -> dict[str, Any]:
    """Return the metrics of a run with a full cluster, two functions, bursts and noise."""
    bursts = mmpp2(rates=(0.0, 60.0), switch=(0.5, 0.5))
    functions = [
        function(
            [App("web", 0.3, Poisson(40.0)), App("other", 1.0, bursts)],
            linear(0.02, 0.01, load_s=0.7),
            name="f",
            slo_s=0.3,
        ),
        function(Poisson(2.0), linear(0.1, load_s=2.0), name="g", slo_s=3.0),
    ]
    nodes = [Node("n", cpu=4.0), Node("m", cpu=2.0)]
    scenario = of(*functions, horizon_s=20.0, nodes=nodes, seed=seed)
    result = run(scenario, whim(plans), interval_s=1.7, noise=0.3, queue_max=50)
    result.pop("planning_ms")
    for each in result["functions"].values():
        each.pop("planning_ms")
    return result


@settings(max_examples=scaled(40))
@given(plans=st.integers(0, 10**9))
def test_every_request_ends_once(plans: int) -> None:
    """However plans change, requests are done, expired or refused, with metrics in range."""
    result = eventful(1, plans)
    for each in (result, *result["functions"].values()):
        ends = each["done"] + each["failed"] + each["expired"] + each["refused"]
        assert each["requests"] == ends
        assert 0 == each["failed"]
        assert 0 <= each["slo_miss_ratio"] <= 1
        assert 0 <= each["cold_start_ratio"] <= 1
        assert each["cpu_core_s"] <= 6.0 * 20.0 + 1e-6


@settings(max_examples=scaled(15))
@given(plans=st.integers(0, 10**9))
def test_results_are_determined_by_seed(plans: int) -> None:
    """The same seed gives the same numbers, and another seed gives others."""
    first = eventful(1, plans)
    assert first == eventful(1, plans)
    assert first["requests"] != eventful(2, plans)["requests"]


def test_arrivals_do_not_depend_on_policy() -> None:
    """The arrivals do not depend on the policy."""
    first, second = (eventful(1, plans)["functions"]["f"]["requests"] for plans in (3, 4))
    assert first == second
