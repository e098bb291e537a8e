"""The published comparison of `infless` and `openfaas` on the example scenarios."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scaler.control.guard import Guard
from scaler.policy_choice import chosen_policy
from scaler.scenarios.scenario_file import read_scenario
from simulator.metrics import measured as metrics_of
from simulator.settings import Settings
from simulator.simulation import Simulation

if TYPE_CHECKING:
    from tests.measured import Data

FOLDER = Path(__file__).parents[2] / "examples" / "scenarios"
MODELS = ("ssd", "mobilenet", "resnet-50")


def run(path: Path, policy: str, horizon_s: float) -> dict[str, Any]:
    """Return the metrics of the first ``horizon_s`` seconds of a scenario under a policy."""
    scenario = dataclasses.replace(read_scenario(path), horizon_s=horizon_s)
    guard = Guard(chosen_policy(policy, scenario.policies))
    return metrics_of(Simulation(scenario, guard, Settings()).run())


@pytest.fixture
def folder(data: Data, tmp_path: Path) -> Path:
    """Return the examples with their own tables or with the measured ones of the publication."""
    if not data.measured:
        return FOLDER
    shutil.copytree(FOLDER, tmp_path / "scenarios")
    for model in MODELS:
        shutil.copy(data.table(model), tmp_path / "scenarios")
    return tmp_path / "scenarios"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "horizon_s"), [("osvt", 600.0), ("osvt-bursty", 600.0), ("osvt-sporadic", 1200.0)]
)
def test_more_requests_per_resource_at_fewer_misses_than_openfaas(
    folder: Path, name: str, horizon_s: float
) -> None:
    """Requests per resource are at least 2.5 times those of `openfaas`, at most 3.1 % miss."""
    path = folder / f"{name}.yaml"
    infless, openfaas = (run(path, each, horizon_s) for each in ("resources", "openfaas"))
    assert infless["rps_per_resource"] >= 2.5 * openfaas["rps_per_resource"]
    assert infless["slo_miss_ratio"] <= min(0.031, openfaas["slo_miss_ratio"])
    assert infless["requests"] == openfaas["requests"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["osvt", "osvt-bursty"])
def test_cost_aim_is_cheaper_than_resources_aim(folder: Path, name: str) -> None:
    """The aim `cost` costs less than 80 % of the paper's aim `resources`."""
    path = folder / f"{name}.yaml"
    cost, resources = (run(path, each, 300.0) for each in ("infless", "resources"))
    assert cost["cost"] < 0.8 * resources["cost"]
    assert cost["slo_miss_ratio"] <= 0.031
