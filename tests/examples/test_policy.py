"""A third party's policy as a package, installed as a user would install it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.snippets import take_one

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., subprocess.CompletedProcess[str]]

ROOT = Path(__file__).resolve().parents[2]
INSTALL, *COMMANDS = take_one("examples/policy/README.md", "^pip install").splitlines()
SCENARIO = """
models: {toy: {linear: {base_ms: 20, per_item_ms: 5}}}
functions:
  - {name: classify, model: toy, slo_ms: 3000, apps: [{name: web, arrivals: {poisson: {rate: 20}}}]}
horizon_s: 5
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the policy as pip installs its wheel."""
    folder = tmp_path_factory.mktemp("policy")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", str(folder)]
    example = ROOT / INSTALL.split()[-1]
    subprocess.run(build, cwd=example, check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("carpool_headroom-*.whl")
    options = ("--quiet", "--no-index", "--no-deps", "--target", str(folder / "site"))
    install = [sys.executable, "-m", "pip", "install", *options, str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    (folder / "scenario.yaml").write_text(SCENARIO)
    scenarios = Path("examples", "scenarios")
    shutil.copytree(ROOT / scenarios, folder / scenarios)
    return folder


@pytest.fixture
def run(installed: Path) -> Run:
    """Return a function that runs a command in that folder, with the policy installed."""
    paths = os.pathsep.join([str(installed / "site"), str(ROOT)])

    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=installed,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return command


@pytest.mark.slow
def test_policy_is_listed_and_keeps_every_promise(run: Run) -> None:
    """The policy is found by its entry point, and listed with the package that brings it."""
    listed = json.loads(run("carpool", "policies", "--kind", "scale", "--json").stdout)
    (found,) = [each for each in listed["policies"] if each["name"] == "headroom"]
    assert ("carpool-headroom", {"reserve": 0.2}) == (found["origin"], found["params"])
    assert (
        "headroom keeps every promise" in run("carpool", "policies", "--check", "headroom").stdout
    )


@pytest.mark.slow
def test_policy_passes_strict_mypy(run: Run, installed: Path) -> None:
    """Strict mypy accepts it with the types that Carpool ships."""
    strict = ("--strict", "--config-file=", f"--cache-dir={installed / 'cache'}")
    checked = run("mypy", *strict, str(installed / "site" / "headroom.py"))
    assert checked.returncode == 0, checked.stdout


@pytest.mark.slow
def test_policy_plans_simulates_and_runs_live(run: Run) -> None:
    """Each command accepts the policy by its name."""
    chosen = ("scenario.yaml", "--policy", "headroom", "--json")
    (plan,) = json.loads(run("carpool", "plan", *chosen).stdout)["functions"].values()
    assert "headroom" == plan["policy"]
    assert ["20 requests/s and a reserve."] == plan["explain"]
    for how in (("simulate",), ("compare", "--live")):
        made = run("carpool", *how, *chosen)
        assert made.returncode == 0, made.stderr
        result = json.loads(made.stdout)["policies"]["headroom"]
        assert result["requests"] > 0
        assert result["done"] >= 0.9 * result["requests"], how


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_command_of_page_runs_policy(run: Run, line: str) -> None:
    """Each command names the policy in its output; simulations and live runs are shortened."""
    name, *argv = shlex.split(line)
    assert "carpool" == name
    shorter = ["--horizon", "5s"] if {"simulate", "compare"} & {*argv} else []
    done = run("carpool", *argv, *shorter)
    assert done.returncode == 0, done.stderr
    assert "headroom" in done.stdout
