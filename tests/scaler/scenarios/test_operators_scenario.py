"""Scenario files that name a model by its ONNX file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from carpool.errors import ConfigError
from examples.models import mlp
from scaler.scenarios.scenario_file import read_scenario
from tests.carpool.profiles import taught

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("profiles")  # what is learnt from them is learnt once

SCENARIO = """
models:
  net: {operators: net.onnx, database: p.sqlite, load_s: 2, memory_mb: 64%s}
functions:
  - name: f
    model: net
    slo_ms: 100
    apps: [{name: all, arrivals: {poisson: {rate: 5}}}]
"""


def _folder(path: Path, more: str = "") -> Path:
    taught(path / "p.sqlite")
    (path / "net.onnx").write_bytes(mlp((64, 64, 10), seed=3).SerializeToString())
    (path / "scenario.yaml").write_text(SCENARIO % more)
    return path / "scenario.yaml"


def test_an_onnx_file_is_a_latency_model(tmp_path: Path) -> None:
    """Operators are predicted from the database beside the scenario."""
    model = read_scenario(_folder(tmp_path)).models["net"]
    assert [2.0, 64.0] == [model.load_s, model.resources(4, 1, 0).memory_mb]
    one_s, many_s = (model.predict(batch, 1, 0) for batch in (1, 32))
    assert one_s is not None
    assert many_s is not None
    assert 0 < one_s <= many_s


def test_measured_run_corrects_prediction(tmp_path: Path) -> None:
    """The prediction for a measured size is the measured latency."""
    plain_s = read_scenario(_folder(tmp_path)).models["net"].predict(4, 1, 0) or 0.0
    more = f", measured: [{{batch: 4, cpu: 1, latency_ms: {2000 * plain_s}}}]"
    model = read_scenario(_folder(tmp_path, more)).models["net"]
    assert pytest.approx(2 * plain_s) == model.predict(4, 1, 0)


def test_a_missing_database_is_named(tmp_path: Path) -> None:
    """The message names the key and the file."""
    path = _folder(tmp_path)
    (tmp_path / "p.sqlite").unlink()
    with pytest.raises(ConfigError, match=r"models\.net\.database = 'p\.sqlite'"):
        read_scenario(path)
