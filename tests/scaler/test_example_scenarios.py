"""The example scenarios can be planned for, and their tables are those of the script."""

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


def test_examples_have_scenarios() -> None:
    """The folder of the examples has scenarios."""
    assert {"osvt", "qa", "cluster-2000"} <= set(SCENARIOS)


@pytest.mark.parametrize("name", ["osvt", "osvt-bursty", "osvt-sporadic", "qa"])
@pytest.mark.parametrize("policy", ["infless", "published", "openfaas"])
def test_scaling_policies_place_all_load(name: str, policy: str) -> None:
    """Each policy that scales leaves no load unplaced."""
    scenario = read_scenario(FOLDER / f"{name}.yaml")
    planning = guarded(chosen_policy(policy, scenario.policies)).plan(snapshot_of(scenario))
    assert {} == planning.unplaced
    assert len(scenario.functions) == len(planning.plans)


def test_two_thousand_servers_hold_ten_thousand_instances() -> None:
    """All load is placed with about ten thousand instances."""
    scenario = read_scenario(FOLDER / "cluster-2000.yaml")
    snapshot = snapshot_of(scenario)
    planning = guarded(chosen_policy("infless", scenario.policies)).plan(snapshot)
    assert {} == planning.unplaced
    assert 9_000 <= instances(planning) <= 11_000
    assert snapshot.cluster is not None
    assert 2000 == len(snapshot.cluster.nodes)


def test_tables_and_traces_match_generating_script(tmp_path: Path) -> None:
    """No table or trace was changed by hand."""
    script = runpy.run_path(str(FOLDER / "stand_ins.py"))
    script["main"].__globals__["HERE"] = tmp_path
    script["main"]()
    written = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.csv")}
    assert there == written


@pytest.mark.parametrize("trace", ["periodic", "bursty", "sporadic"])
def test_traces_have_mean_of_one_request_per_second(trace: str) -> None:
    """With a mean of one request per second, the scale of a trace is its mean rate."""
    lines = (FOLDER / f"{trace}.csv").read_text(encoding="utf-8").splitlines()[1:]
    rates = [float(line.partition(",")[2]) for line in lines]
    assert pytest.approx(60, abs=0.1) == sum(rates) / len(rates)
