"""``carpool calibrate`` on this machine, and ``carpool predict`` with its calibration."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from carpool.errors import ConfigError
from carpool.onnx_graph.operator_graph import Case
from carpool.onnx_graph.optimised import optimised
from carpool.predictor.calibration import Calibration
from carpool.predictor.calibration_file import read_calibration, write_calibration
from carpool.predictor.features import sized
from carpool.predictor.profile import Alone, Origin, Overhead, Setting
from carpool.predictor.profile_file import default_database
from carpool.predictor.roofs import roofs
from carpool.processor import runtime
from tests.docs.snippets import take_one
from watchdog_plugin.profiling import calibrate_command, predict_command, single_operators
from watchdog_plugin.profiling.calibrating import calibrate
from watchdog_plugin.profiling.profiler import origin
from watchdog_plugin.profiling.reference_operators import LARGE, SMALL, reference_model

if TYPE_CHECKING:
    from pathlib import Path

    Captured = pytest.CaptureFixture[str]

COMMAND = take_one("docs/commands.md", "^carpool calibrate")
PRINTED = take_one("docs/profiles.md", "^carpool calibrate")


GEMM = '{"alpha":1.0,"beta":1.0,"transA":0,"transB":0}'
# Batch, moved MB and seconds on one thread of an AMD EPYC (26-2-1).
MEASURED = [
    ("Relu", "{}", "f32[1,8388608]>f32[1,8388608]", 1, 64, 1.52e-3),
    ("Relu", "{}", "f32[1,32,512]>f32[1,32,512]", 1, 4, 2.69e-6),
    ("Relu", "{}", "f32[8,32,512]>f32[8,32,512]", 8, 16, 1.04e-5),
    ("MatMul", "{}", "f32[1,4096];f32[4096,4096]=>f32[1,4096]", 1, 64, 2.12e-3),
    ("MatMul", "{}", "f32[1,64,256];f32[256,256]=>f32[1,64,256]", 1, 4, 3.39e-5),
    ("MatMul", "{}", "f32[8,64,256];f32[256,256]=>f32[8,64,256]", 8, 16, 2.93e-4),
    ("Gemm", GEMM, "f32[1,512];f32[512,512]=;f32[512]=>f32[1,512]", 1, 4, 1.18e-5),
    ("Gemm", GEMM, "f32[8,512];f32[512,512]=;f32[512]=>f32[8,512]", 8, 16, 3.11e-5),
    ("MatMulInteger", "{}", "u8[1,64,256];i8[256,256]=>i32[1,64,256]", 1, 4, 7.25e-6),
    ("MatMulInteger", "{}", "u8[8,64,256];i8[256,256]=>i32[8,64,256]", 8, 16, 6.79e-5),
]
COST = Overhead(3.7e-6, 1e-6)


@pytest.fixture(autouse=True)
def _own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def _plain(path: Path) -> Path:
    weight = numpy_helper.from_array(np.ones((400, 300), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 400])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 300])],
        [weight],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_spent_budget_is_reported_once() -> None:
    """The message is not repeated for each model of reference operators, and none is measured."""
    said: list[str] = []
    assert () == calibrate((1,), 0.0, said.append).rows
    assert ["the time budget is spent: no more operators are measured"] == said


@pytest.mark.slow
def test_reference_operators_cover_every_family_and_roof(tmp_path: Path) -> None:
    """The operators cover all families that have a law, with integer operators among them.

    Their times give every roof.
    """
    found, rows = set(), list[Alone]()
    for references in (SMALL, LARGE):
        best = optimised(tmp_path / "references.onnx", reference_model(references))
        found |= {sized(operator.at(2)) for operator in best.graph.operators}
        rows += [Alone(o.at(1), Setting(1, 1), 0, 1e-3) for o in best.graph.operators]
    families = {size.family for size in found}
    expected = {"dense", "unfolded", "recurrent", "window", "rows", "copy", "elementwise"}
    assert expected <= families
    assert {"dense whole", "conv whole", "LSTM", "GRU"} <= {size.operator_class for size in found}
    assert all(roofs(Calibration(origin(), tuple(rows), {1: COST}))[0])


def test_prediction_is_scaled_by_calibration(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prediction from another processor's profiles is scaled, and says so."""
    rows = [
        Alone(Case.parse(*case), Setting(batch, 1), moved_mb, seconds)
        for *case, batch, moved_mb, seconds in MEASURED
    ]
    measured = Calibration(origin(), tuple(rows), {1: COST})
    monkeypatch.setattr(calibrate_command, "calibrate", lambda *_: measured)
    case = Case.parse("Neg", "", "f32[1,16]>f32[1,16]")
    of_two = Alone(case, Setting(1, 2), 0, 1e-3)
    write_calibration(Calibration(origin(), (of_two,), {2: Overhead(1e-6, 1e-6)}))
    assert 0 == calibrate_command.main(["--cpu", "1", "--json"])
    document = json.loads(capsys.readouterr().out)
    (roof,) = document["roofs"]
    assert 1 == roof["threads"]
    assert all(roof[name] > 0 for name in ("f32_gflops", "i8_gops", "cache_gb_s", "memory_gb_s"))
    kept = read_calibration(origin())
    assert kept is not None
    assert (of_two, *rows) == kept.rows
    assert len(rows) == document["operators"]
    assert {1, 2} == set(kept.overheads)
    foreign = Origin("another", runtime())
    write_calibration(Calibration(foreign, kept.rows, kept.overheads))
    path, database = _plain(tmp_path / "net.onnx"), str(default_database())
    argv = [str(path), "--batch", "4", "--hardware", "another", "--database", database]
    assert 0 == predict_command.main([*argv, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert [True, True] == [document["foreign"], document["scaled"]]
    (row,) = document["rows"]
    assert row["high_ms"] < 3 * row["latency_ms"]
    assert 0 == predict_command.main(argv)
    assert "scaled by its calibration" in capsys.readouterr().out


def _masked(text: str) -> list[list[str]]:
    """Return the words of the lines without numbers and the name of the processor."""
    numbers = re.compile(r"-?\d+(\.\d+)*(e[+-]\d+)?")
    return [numbers.sub("N", re.sub(r".*, onnx", "onnx", x)).split() for x in text.splitlines()]


@pytest.mark.slow
def test_output_has_form_of_page(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """One core, and each operator measured once, give other numbers than those of the page."""
    monkeypatch.setattr(single_operators, "_MOST_VISITS", 1)
    command, shown = PRINTED.split("\n\n")
    assert COMMAND.split() == command.split()
    assert 0 == calibrate_command.main([*command.split()[2:], "--cpu", "1", "--budget", "3m"])
    expected = _masked(shown.partition("...")[0])
    assert expected == _masked(capsys.readouterr().out)[: len(expected)]


@pytest.mark.slow
def test_earlier_calibration_is_kept_if_budget_is_too_small() -> None:
    """An earlier calibration is kept if the time of no operator could be measured."""
    write_calibration(Calibration(origin(), (), {1: Overhead(1e-6, 1e-6)}))
    kept = read_calibration(origin())
    with pytest.raises(ConfigError, match="the budget is too small"):
        calibrate_command.main(["--cpu", "1", "--budget", "0s"])
    assert kept == read_calibration(origin())


def test_more_threads_than_cores_are_refused() -> None:
    """The error names the number of cores."""
    there = len(os.sched_getaffinity(0))
    with pytest.raises(ConfigError, match=rf"'{there + 1}': expected at most {there}, the cores"):
        calibrate_command.main(["--cpu", f"{there + 1}"])
