"""Stack files, scenarios, chart values and queries in the pages are valid as printed."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from onnx import TensorProto, helper

from carpool import plugins
from scaler.scenarios.scenario_file import read_scenario
from scripts.manifests import rendered
from tests.docs.snippets import ROOT, take, take_one
from tests.faas_stack.doctor_case import Doctor
from tests.tools import require_tool
from tests.watchdog_plugin import models

if TYPE_CHECKING:
    from pathlib import Path

    from tests.docs.snippets import Block

SCENARIOS = ROOT / "examples" / "scenarios"
FUNCTIONS = [
    *take("docs/docker.md", "^(functions|labels):"),
    *take("docs/gpu.md"),
    *take("docs/grpc.md", "^functions:"),
    *take("docs/kubernetes.md", "^functions:"),
    *take("docs/partition.md", "^functions:"),
    *take("docs/policies.md", r"^com\.carpool\.batch\.policy:"),
    *take("docs/scaler.md", "^labels:"),
    *take("docs/sidecar.md", "^annotations:"),
]
SCENARIO = take_one("docs/simulator.md", "^cluster:")
PIECES = [
    *take("docs/policies/carpool.md", "^policies:"),
    *take("docs/policies/infaas.md", "^models:"),
    *take("docs/profiles.md", "^models:"),
    *take("docs/simulator.md", "^policies:"),
]
VALUES = [
    *take("docs/grpc.md", "^networkPolicy:"),
    *take("docs/kubernetes.md", "^(networkPolicy|serviceMonitor):"),
]
QUERIES = [*take("docs/canary.md", "^sum by"), *take("docs/metrics.md", "^sum by")]
SCRAPED = take_one("docs/security.md", "^scrape_configs:")
ENTRY_POINT = take_one("docs/policies.md", language="toml")


def _named(block: Block) -> str:
    return f"{block.page}: {block.first}"


def _functions(block: Block) -> dict[str, Any]:
    """Return the functions of a block: a stack file, a function of one, or a function's labels."""
    document = yaml.safe_load(block.text)
    if "functions" in document:
        return dict(document["functions"])
    whole = {"labels", "annotations"} & document.keys()
    return {"classify": document if whole else {"labels": document}}


@pytest.mark.parametrize("block", FUNCTIONS, ids=_named)
def test_doctor_accepts_function_settings(
    block: Block, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The doctor knows each setting and accepts its value."""
    functions = _functions(block)
    assert [] == Doctor(tmp_path, capsys).says_of(functions)


@pytest.fixture
def scenarios(tmp_path: Path) -> Path:
    """Return a folder with the data that scenarios in the pages name."""
    shutil.copytree(SCENARIOS, tmp_path, dirs_exist_ok=True)
    shutil.copy(SCENARIOS / "tagging.json", tmp_path / "vgg19.json")
    shutil.copy(ROOT / "carpool" / "predictor" / "profiles.sqlite", tmp_path)
    models.mlp(tmp_path / "model.onnx")
    ids: tuple[int, models.Dims] = (TensorProto.INT64, ["batch", "sequence"])
    nodes = [helper.make_node("Identity", ["ids"], ["tags"])]
    models.save(tmp_path / "tagging.onnx", nodes, {"ids": ids}, {"tags": ids})
    return tmp_path


def test_scenario_with_every_key_can_be_read(scenarios: Path) -> None:
    """The scenario with every key of the page can be read."""
    (scenarios / "scenario.yaml").write_text(SCENARIO)
    scenario = read_scenario(scenarios / "scenario.yaml")
    assert ["classify"] == [function.name for function in scenario.functions]


@pytest.mark.parametrize("block", PIECES, ids=_named)
def test_scenario_with_each_fragment_can_be_read(block: Block, scenarios: Path) -> None:
    """The scenario can be read with each piece in place of its own keys."""
    whole, piece = yaml.safe_load(SCENARIO), yaml.safe_load(block.text)
    known = {**whole["models"], **piece.get("models", {})}
    (scenarios / "scenario.yaml").write_text(yaml.safe_dump({**whole, **piece, "models": known}))
    assert read_scenario(scenarios / "scenario.yaml")


@pytest.mark.parametrize("block", VALUES, ids=_named)
def test_chart_accepts_values(block: Block, tmp_path: Path) -> None:
    """The chart accepts the values, and they change what it renders."""
    (tmp_path / "values.yaml").write_text(block.text)
    with_block = rendered(require_tool("helm"), values=tmp_path / "values.yaml")
    assert with_block != rendered(require_tool("helm"), values=None)


def test_prometheus_accepts_queries(tmp_path: Path) -> None:
    """Prometheus accepts each query as the expression of a rule."""
    rules = [{"record": f"shown:{n}", "expr": query.text} for n, query in enumerate(QUERIES)]
    (tmp_path / "rules.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "shown", "rules": rules}]})
    )
    command = (require_tool("promtool"), "check", "rules", tmp_path / "rules.yml")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr


def test_prometheus_accepts_scrape_configuration(tmp_path: Path) -> None:
    """Prometheus accepts the configuration; its password files are not checked."""
    (tmp_path / "prometheus.yml").write_text(SCRAPED)
    command = (require_tool("promtool"), "check", "config", "--syntax-only")
    done = subprocess.run(
        [*command, tmp_path / "prometheus.yml"], capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stderr


def test_entry_point_of_batch_policy_is_in_searched_group() -> None:
    """The entry point is in the group that is searched."""
    (group,) = tomllib.loads(ENTRY_POINT)["project"]["entry-points"]
    assert plugins.GROUPS["batch"] == group
