"""Simulating within a limit of time, by a clock that goes on when it is looked at."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.latency.linear import Linear
from scaler.arrivals.processes import Trace
from scaler.planning.cost import Prices
from scaler.scenarios.scenario import App, Function
from simulator.advice.evidence import Evidence, Gatherer
from simulator.advice.parts import parts
from simulator.advice.question import Question
from tests.simulator.advice.poor_policies import now

if TYPE_CHECKING:
    from collections.abc import Mapping

TRACE = Trace((0.0,), (5.0,), 60.0)
POLICIES = {"openfaas": {"policy": "openfaas"}, "fixed": {"policy": "fixed"}}
SLOW = {"slow": {"policy": "tests.simulator.advice.poor_policies:Slow"}}


def gathered(
    limit: float, policies: Mapping[str, Mapping[str, str]] = POLICIES
) -> tuple[Evidence, list[str]]:
    """Three parts for each policy; a simulation of 60 s looks at the clock thirty times."""
    app = App("all", 0.2, TRACE)
    function = Function("f", "line", Linear(0.03, 0.006, load_s=2.0), 0.2, 0.99, 32, (app,))
    prices = Prices("reserved", cpu_core_s=1e-4)
    question = Question(TRACE, Path("own.csv"), 1.0, function, {}, prices)
    said: list[str] = []
    gatherer = Gatherer(question, policies, parts(TRACE, 3, 1), now, said.append)
    return gatherer.gather(list(policies), now() + limit), said


def test_with_time_enough_every_policy_has_every_part() -> None:
    """With the same requests for each, other ones in each part, and a line for each."""
    found, said = gathered(math.inf)
    assert [] == found.unfinished
    assert 6 == len(said)
    ours, theirs = found.rows["openfaas"], found.rows["fixed"]
    assert 3 == len(ours) == len(theirs)
    assert [row.requests for row in ours] == [row.requests for row in theirs]
    assert 3 == len({row.requests for row in ours})
    assert all(0 < row.bound <= row.cost for row in ours)


def test_a_part_that_was_not_finished_by_all_is_not_counted() -> None:
    """The time is over in the middle of the second one."""
    found, _ = gathered(100.0)
    assert [1, 1] == [len(rows) for rows in found.rows.values()]
    assert [] == found.unfinished


def test_a_policy_that_takes_more_than_its_share_is_left_out() -> None:
    """Which leaves the others their time."""
    found, _ = gathered(300.0, SLOW | POLICIES)
    assert ["slow"] == found.unfinished
    assert {"openfaas", "fixed"} == set(found.rows)
    assert all(found.rows.values())


def test_without_time_there_is_nothing() -> None:
    """And no endless wait."""
    found, said = gathered(5.0)
    assert ({}, []) == (found.rows, said)
    assert ["openfaas", "fixed"] == found.unfinished
