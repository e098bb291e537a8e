"""Simulations within a time limit, by a clock that advances when it is read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.arrivals.processes import Trace
from carpool.latency.linear import Linear
from scaler.planning.cost import Prices
from scaler.scenarios.scenario import App, Function
from simulator.advice import evidence
from simulator.advice.evidence import BOUND, Evidence, Gatherer
from simulator.advice.question import Question
from simulator.advice.trace_parts import parts
from tests.simulator.advice.poor_policies import now

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

    from scaler.scenarios.scenario import Scenario

TRACE = Trace((0.0,), (5.0,), 60.0)
POLICIES = {"openfaas": {"policy": "openfaas"}, "fixed": {"policy": "fixed"}}
SLOW = {"slow": {"policy": "tests.simulator.advice.poor_policies:Slow"}}


def gathered(
    limit: float, policies: Mapping[str, Mapping[str, str]] = POLICIES
) -> tuple[Evidence, list[str]]:
    """Simulate three parts for each policy; a simulation of 60 s reads the clock thirty times."""
    app = App("all", 0.2, TRACE)
    function = Function("f", "line", Linear(0.03, 0.006, load_s=2.0), 0.2, 0.99, 32, (app,))
    prices = Prices("reserved", cpu_core_s=1e-4)
    question = Question(TRACE, Path("own.csv"), 1.0, function, {}, prices)
    said: list[str] = []
    gatherer = Gatherer(question, policies, parts(TRACE, 3, 1), now, said.append)
    return gatherer.gather(list(policies), now() + limit), said


def test_every_policy_runs_every_part_with_enough_time() -> None:
    """With enough time every policy runs every part, all with the same requests per part."""
    found, said = gathered(math.inf)
    assert [] == found.unfinished
    assert 6 == len(said)
    ours, theirs = found.rows["openfaas"], found.rows["fixed"]
    assert 3 == len(ours) == len(theirs)
    assert [row.requests for row in ours] == [row.requests for row in theirs]
    assert 3 == len({row.requests for row in ours})
    assert all(0 < row.bound <= row.cost for row in ours)


def test_part_not_finished_by_all_policies_is_not_counted() -> None:
    """A part that not all policies finished in time is not counted."""
    found, _ = gathered(100.0)
    assert [1, 1] == [len(rows) for rows in found.rows.values()]
    assert [] == found.unfinished


def test_policy_that_exceeds_its_time_share_is_left_out() -> None:
    """A policy that exceeds its share of the time is left out, and the others keep theirs."""
    found, _ = gathered(300.0, SLOW | POLICIES)
    assert ["slow"] == found.unfinished
    assert {"openfaas", "fixed"} == set(found.rows)
    assert all(found.rows.values())


def test_nothing_is_simulated_without_time() -> None:
    """Without time nothing is simulated, and all policies are unfinished."""
    found, said = gathered(5.0)
    assert ({}, []) == (found.rows, said)
    assert [BOUND, "openfaas", "fixed"] == found.unfinished


def test_bound_that_exceeds_its_time_share_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lower bound that takes too long is left out, and the policies keep their shares."""

    def endless(scenario: Scenario, progress: Callable[[float], None]) -> float:
        del scenario
        while True:
            progress(0.0)

    monkeypatch.setattr(evidence, "lower_bound", endless)
    found, _ = gathered(1000.0)
    assert [BOUND] == found.unfinished
    assert {"openfaas": 3, "fixed": 3} == {name: len(rows) for name, rows in found.rows.items()}
    every = [row for rows in found.rows.values() for row in rows]
    assert all(math.isnan(row.bound) and row.cost > 0 for row in every)
