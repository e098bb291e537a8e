"""Scenario and stack files that people wrote for an earlier version mean the same today.

`tests/old_files` has the example files as they were in commit 397cb06. They stay as they are: if a
format changes, new readers must go on accepting them.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from faas_stack.stack.stack_file import load
from scaler.policy_choice import check_policies, executed
from scaler.scenarios.scenario_file import read_scenario

ROOT = Path(__file__).parents[1]
OLD = ROOT / "tests" / "old_files"
SCENARIOS = sorted(path.stem for path in (OLD / "scenarios").glob("*.yaml"))


def _written(path: Path) -> dict[str, Any]:
    """Return the content of a file as plain YAML."""
    written: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return written


def test_fixtures_are_there() -> None:
    """The folder has the scenarios of that commit."""
    assert {"batch", "lazybatching", "osvt", "tagging", "variants"} <= set(SCENARIOS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_old_scenario_means_the_same(name: str) -> None:
    """Functions, objectives and load are those of the file, and its policies are accepted."""
    path = OLD / "scenarios" / f"{name}.yaml"
    scenario, written = read_scenario(path), _written(path)
    assert written["horizon_s"] == scenario.horizon_s
    assert len(written["functions"]) == len(scenario.functions)
    for function, old in zip(scenario.functions, written["functions"], strict=True):
        assert (old["name"], old["model"]) == (function.name, function.model_name)
        assert pytest.approx(old["slo_ms"]) == function.slo_s * 1000
        assert [app["name"] for app in old["apps"]] == [app.name for app in function.apps]
        assert all(app.arrivals.mean_rate > 0 for app in function.apps)
        assert next(function.model.configurations(function.max_batch))
    assert list(written.get("policies", {})) == list(scenario.policies)
    check_policies(scenario)


def test_old_scenario_sets_the_executor_of_a_policy() -> None:
    """An entry of the old file under ``policies`` still makes batches run stage by stage."""
    scenario = read_scenario(OLD / "scenarios" / "lazybatching.yaml")
    assert {"lazy"} == {each.executor for each in executed("lazybatching", scenario).functions}
    assert {"graph"} == {each.executor for each in executed("window", scenario).functions}


def test_old_stack_file_means_the_same(tmp_path: Path) -> None:
    """Its functions have the templates, images and labels of the file; nothing is refused."""
    written = _written(OLD / "stack.yaml")
    shutil.copy(OLD / "stack.yaml", tmp_path)
    (tmp_path / "template").symlink_to(ROOT / "templates")
    for name in written["functions"]:
        (tmp_path / name).mkdir()
    stack = load(tmp_path / "stack.yaml", {})
    assert list(written["functions"]) == [function.name for function in stack.functions]
    for function in stack.functions:
        old = written["functions"][function.name]
        assert function.template is not None
        assert (old["lang"], old["image"], old["labels"]) == (
            function.lang,
            function.image,
            function.labels,
        )
