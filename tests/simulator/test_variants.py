"""Simulated functions with model variants."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from benchmarks.static_variants import Static, best_static
from carpool.errors import ConfigError
from scaler.control.guard import Guard
from scaler.policy_choice import chosen_policy
from scaler.scenarios.scenario_file import read_scenario
from simulator.metrics import measured
from simulator.simulation import Simulation

EXAMPLE = Path(__file__).parents[2] / "examples" / "scenarios" / "variants.yaml"

VARIANTS = """{"variants": [
  {"name": "small", "accuracy": 0.7, "load_s": 1, "latencies_ms": {"1": 20, "8": 100}},
  {"name": "large", "accuracy": 0.8, "load_s": 5, "latencies_ms": {"1": 60}}]}"""
SCENARIO = """
models: {vision: {variants: vision.json}}
prices: {billing: reserved, cpu_core_s: 1.0}
functions:
  - name: vision
    model: vision
    slo_ms: 500
    apps:
      - {name: lax, arrivals: {poisson: {rate: 20}}}
      - {name: exact, accuracy: ACCURACY, arrivals: {poisson: {rate: 5}}}
horizon_s: 120
"""


def write(folder: Path, accuracy: str) -> Path:
    """Write a scenario with two variants."""
    (folder / "vision.json").write_text(VARIANTS, encoding="utf-8")
    path = folder / "scenario.yaml"
    path.write_text(SCENARIO.replace("ACCURACY", accuracy), encoding="utf-8")
    return path


def test_variant_mixture_is_cheaper_than_replicas_alone(tmp_path: Path) -> None:
    """A mixture of variants misses at most 1 % and costs less than replicas alone."""
    scenario = read_scenario(write(tmp_path, "0.75"))
    mixed, alone = (
        measured(Simulation(scenario, Guard(chosen_policy("infaas", {"infaas": params}))).run())
        for params in ({}, {"scaling": "replicate"})
    )
    assert mixed["slo_miss_ratio"] <= 0.01
    assert mixed["cost"] < alone["cost"]


def test_one_request_for_a_slowly_loading_variant_is_answered_and_costs_no_other(
    tmp_path: Path,
) -> None:
    """The variant loads for 40 s, and nobody else wants it before or after."""
    (tmp_path / "vision.json").write_text(
        """{"variants": [
        {"name": "small", "accuracy": 0.7, "load_s": 1, "latencies_ms": {"1": 10, "8": 45}},
        {"name": "large", "accuracy": 0.9, "load_s": 40, "latencies_ms": {"1": 40, "8": 180}}]}"""
    )
    (tmp_path / "one.csv").write_text("start_s,requests_per_minute\n0,0\n20,120\n21,0\n200,0\n")
    path = tmp_path / "scenario.yaml"
    path.write_text(
        "models: {vision: {variants: vision.json}}\n"
        "functions:\n  - name: vision\n    model: vision\n    slo_ms: 300\n    apps:\n"
        "      - {name: lax, accuracy: 0.5, arrivals: {poisson: {rate: 10}}}\n"
        "      - {name: exact, slo_ms: 100000, accuracy: 0.85, arrivals: {trace: one.csv}}\n"
        "horizon_s: 200\nseed: 3\n"
    )
    found = measured(Simulation(read_scenario(path), Guard(chosen_policy("infaas", {}))).run())
    assert found["requests"] > 1900
    assert 0 == found["slo_miss_ratio"]


@pytest.mark.slow
def test_best_static_choice_meets_objective_unchanged(tmp_path: Path) -> None:
    """The best static choice, the benchmark's reference, meets the objective unchanged."""
    scenario = read_scenario(write(tmp_path, "0.75"))
    pools = best_static(scenario, 0.01)
    outcome = Simulation(scenario, Guard(Static(pools))).run()
    found = measured(outcome)
    assert found["slo_miss_ratio"] <= 0.01
    counts = {(moment.ready, moment.loading) for moment in outcome.functions[0].moments}
    assert {(sum(pool.instances for pool in pools["vision"]), 0)} == counts


def test_accuracy_above_highest_variant_is_error(tmp_path: Path) -> None:
    """An accuracy above that of every variant is an error that names the highest one."""
    with pytest.raises(ConfigError, match=r"at most 0\.8"):
        read_scenario(write(tmp_path, "0.85"))


def test_the_example_has_175_variants_of_8_applications() -> None:
    """The example has 8 functions with 175 variants."""
    scenario = read_scenario(EXAMPLE)
    assert 8 == len(scenario.functions)
    assert 175 == sum(len(getattr(m, "variants", ())) for m in scenario.models.values())


def test_the_example_is_what_its_script_writes(tmp_path: Path) -> None:
    """The example's files equal the output of its script."""
    folder = EXAMPLE.parent / "variants"
    script = runpy.run_path(str(folder / "stand_ins.py"))
    script["main"].__globals__["HERE"] = tmp_path
    script["main"]()
    written = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    there = {p.name: p.read_text(encoding="utf-8") for p in folder.iterdir() if p.suffix != ".py"}
    there = {name: text for name, text in there.items() if name in written}
    assert there == written
