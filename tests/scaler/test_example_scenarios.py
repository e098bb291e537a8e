"""The scenarios among the examples can be planned for, and their tables are what made them."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from scaler.plan_command import snapshot_of
from scaler.policy_choice import chosen_policy
from scaler.scenarios.scenario_file import read_scenario
from tests.scaler.loads import guarded, instances

FOLDER = Path(__file__).parents[2] / "examples" / "scenarios"
SCENARIOS = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def test_there_are_some() -> None:
    """The folder is where it should be."""
    assert {"osvt", "qa", "cluster-2000"} <= set(SCENARIOS)


@pytest.mark.parametrize("name", ["osvt", "osvt-bursty", "osvt-sporadic", "qa"])
@pytest.mark.parametrize("policy", ["infless", "published", "openfaas"])
def test_all_of_the_load_has_room(name: str, policy: str) -> None:
    """Under each policy that scales."""
    scenario = read_scenario(FOLDER / f"{name}.yaml")
    planning = guarded(chosen_policy(policy, scenario.policies)).plan(snapshot_of(scenario))
    assert {} == planning.unplaced
    assert len(scenario.functions) == len(planning.plans)


def test_two_thousand_servers_hold_ten_thousand_instances() -> None:
    """All placed, and little lies idle on the servers in use."""
    scenario = read_scenario(FOLDER / "cluster-2000.yaml")
    snapshot = snapshot_of(scenario)
    planning = guarded(chosen_policy("infless", scenario.policies)).plan(snapshot)
    assert {} == planning.unplaced
    assert 9_000 <= instances(planning) <= 11_000
    assert snapshot.cluster is not None
    assert 2000 == len(snapshot.cluster.nodes)


def test_the_tables_and_traces_are_those_that_the_script_writes(tmp_path: Path) -> None:
    """None has been changed by hand."""
    script = runpy.run_path(str(FOLDER / "stand_ins.py"))
    script["main"].__globals__["HERE"] = tmp_path
    script["main"]()
    written = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.csv")}
    assert there == written


@pytest.mark.parametrize("trace", ["periodic", "bursty", "sporadic"])
def test_a_trace_has_a_mean_of_one_request_a_second(trace: str) -> None:
    """So that its scale is the mean rate."""
    lines = (FOLDER / f"{trace}.csv").read_text(encoding="utf-8").splitlines()[1:]
    rates = [float(line.partition(",")[2]) for line in lines]
    assert pytest.approx(60, abs=0.1) == sum(rates) / len(rates)
