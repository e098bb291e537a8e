"""``carpool profile`` and ``carpool predict`` on models that really run."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from carpool.__main__ import main
from carpool.errors import ConfigError
from carpool.onnx_graph.model_file import read_onnx
from carpool.onnx_graph.optimised import read_graph
from carpool.predictor.profile_database import read_profiles
from tests.carpool.profiles import taught
from watchdog_plugin.function import LoadError
from watchdog_plugin.profiling import command, predict_command
from watchdog_plugin.profiling.profiler import Grid, measure

if TYPE_CHECKING:
    from pathlib import Path

    Captured = pytest.CaptureFixture[str]

pytestmark = pytest.mark.xdist_group("profiles")  # what is learnt from them is learnt once


def _dense(path: Path, batch: int | str = "batch", kind: str = "Gemm", domain: str = "") -> Path:
    weight = numpy_helper.from_array(np.ones((40, 30), np.float32), "w")
    node = helper.make_node(kind, ["x", "w"], ["y"], domain=domain)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 40])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 30])],
        [weight],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("odd", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def _branching(path: Path) -> Path:
    """Write a model with an If."""
    ends = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])]
    branches = {
        f"{name}_branch": helper.make_graph([helper.make_node(kind, ["x"], ["y"])], name, [], ends)
        for name, kind in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["yes"], to=TensorProto.BOOL),
        helper.make_node("If", ["yes"], ["y"], **branches),
    ]
    start = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])]
    graph = helper.make_graph(nodes, "g", start, ends)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.mark.slow
def test_a_model_is_measured_and_then_predicted(tmp_path: Path, capsys: Captured) -> None:
    """The database holds the measured runs and operators of the model."""
    model, database = _dense(tmp_path / "net.onnx"), taught(tmp_path / "p.sqlite")
    argv = [str(model), "--batch", "1,4", "--cpu", "1", "--database", str(database), "--json"]
    assert 0 == command.main([*argv, "--budget", "1s"])
    measured = json.loads(capsys.readouterr().out)
    assert "net" == measured["model"]
    assert [(1, 0, 1), (1, 0, 4)] == [(r["cpu"], r["gpu"], r["batch"]) for r in measured["rows"]]
    assert all(0 < r["latency_ms"] <= r["p99_ms"] for r in measured["rows"])
    (found,) = [each for each in read_profiles(database) if each.model == "net"]
    assert {"Gemm"} == {row.case.op_type for row in found.operators}
    assert found.load_s > 0


def test_a_prediction_needs_no_run(tmp_path: Path, capsys: Captured) -> None:
    """The JSON has the documented form: a row per size, with an interval and quantiles."""
    model, database = _dense(tmp_path / "net.onnx"), taught(tmp_path / "p.sqlite")
    argv = [str(model), "--batch", "1,4", "--cpu", "0.5,2", "--database", str(database)]
    assert 0 == predict_command.main([*argv, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert ["net", "sequential"] == [document["model"], document["executor"]]
    assert [(0.5, 1), (0.5, 4), (2, 1), (2, 4)] == [
        (r["cpu"], r["batch"]) for r in document["rows"]
    ]
    for row in document["rows"]:
        assert row["low_ms"] <= row["high_ms"]
        assert row["latency_ms"] <= row["p95_ms"] <= row["p99_ms"]
    assert 0 == predict_command.main([*argv, "--measured", "4:2:9"])
    assert "corrected by 1 measured run\n" in capsys.readouterr().out


def test_unknown_sizes_are_reported(tmp_path: Path, capsys: Captured) -> None:
    """The exit code is 1, and the message lists the sizes that the database knows."""
    model, database = _dense(tmp_path / "net.onnx"), taught(tmp_path / "p.sqlite")
    assert 1 == predict_command.main([str(model), "--cpu", "8", "--database", str(database)])
    said = capsys.readouterr().err
    assert "batches of 1 on 8, 2 on 8, 4 on 8, 8 on 8; the database knows 1 core without" in said
    assert "2 cores without a GPU, and batches up to 32" in said


@pytest.mark.parametrize("size", ["4:8:3", "400:1:3"])
def test_measured_runs_of_unknown_sizes_are_refused(tmp_path: Path, size: str) -> None:
    """A measured run that cannot correct the prediction is refused instead of ignored."""
    model, database = _dense(tmp_path / "net.onnx"), taught(tmp_path / "p.sqlite")
    with pytest.raises(ConfigError, match=r"--measured = .*the database knows 1 core"):
        predict_command.main([str(model), "--measured", size, "--database", str(database)])


@pytest.mark.parametrize("gpu", ["-5", "nan", "101", "half"])
def test_gpu_share_outside_0_to_100_is_refused(tmp_path: Path, capsys: Captured, gpu: str) -> None:
    """A share outside 0 to 100 is refused."""
    with pytest.raises(SystemExit):
        predict_command.main([str(_dense(tmp_path / "net.onnx")), f"--gpu={gpu}"])
    assert f"{gpu!r}: expected percent of one GPU, from 0 to 100" in capsys.readouterr().err


def test_unusable_database_is_refused_before_measuring(tmp_path: Path, capsys: Captured) -> None:
    """An unusable database is an error before the measurement, not after it."""
    model, database = _dense(tmp_path / "net.onnx"), tmp_path / "p.sqlite"
    database.write_text("no database")
    with pytest.raises(ConfigError, match=r"file is not a database.*delete it, or name another"):
        command.main([str(model), "--database", str(database)])
    assert "round" not in capsys.readouterr().err


def test_spent_budget_measures_each_setting_once(tmp_path: Path) -> None:
    """Each setting is measured once even with a budget of zero, and nothing more."""
    model = read_onnx(_dense(tmp_path / "m.onnx"), {})
    said: list[str] = []
    grid = Grid([1, 2], [1], budget_s=0.0)
    seen, *_ = measure(model, tmp_path, grid, said.append, operators=False)
    assert 1 == len(said)
    assert said[0].startswith("round 1, ")
    assert all(measured.whole_s for measured in seen)


def test_a_run_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model may accept its largest batch, which is tried first, and fail with a smaller one."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    second = numpy_helper.from_array(np.array(1), "second")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["x", "second"], ["y"], axis=0)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
        [second],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(LoadError, match="fails on inputs") as refused:  # which holds the sessions
        measure(model, tmp_path, Grid([1, 2], [1]), lambda _: None, operators=True)
    assert (LoadError, []) == (refused.type, list(tmp_path.iterdir()))


def test_more_threads_than_cores_are_not_measured(tmp_path: Path) -> None:
    """More threads than cores are refused, as times would be stored for that many cores."""
    model, there = _dense(tmp_path / "net.onnx"), len(os.sched_getaffinity(0))
    argv = [str(model), "--cpu", f"1,{there + 1}", "--database", str(tmp_path / "p.sqlite")]
    with pytest.raises(ConfigError, match=rf"'{there + 1}': expected at most {there}, the cores"):
        command.main(argv)


def test_unmeasured_gpu_share_is_reported(tmp_path: Path, capsys: Captured) -> None:
    """Measurements without a GPU give no prediction with one."""
    model, database = _dense(tmp_path / "net.onnx"), taught(tmp_path / "p.sqlite")
    argv = [str(model), "--gpu", "50", "--batch", "1", "--database", str(database)]
    assert 1 == predict_command.main(argv)
    assert "not known: batches of 1 on 1 with 50 % of a GPU; " in capsys.readouterr().err


@pytest.mark.parametrize("sizes", ["0", "-1", "1000000", "nan", "inf", "1,two", ""])
def test_invalid_sizes_are_refused(tmp_path: Path, capsys: Captured, sizes: str) -> None:
    """The message names the bounds."""
    with pytest.raises(SystemExit):
        command.main([str(tmp_path / "net.onnx"), f"--batch={sizes}"])
    expected = f"{sizes!r}: expected numbers above 0 and below a million, such as 1,2,4"
    assert expected in capsys.readouterr().err


def test_measurements_are_printed_if_storing_fails(tmp_path: Path, capsys: Captured) -> None:
    """Measurements are printed even if the disk is full when they are stored."""
    model, database = _dense(tmp_path / "net.onnx"), taught(tmp_path / "p.sqlite")
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "CREATE TRIGGER no BEFORE INSERT ON runs BEGIN"
            " SELECT RAISE(ABORT, 'database or disk is full'); END"
        )
    argv = [str(model), "--batch", "1", "--cpu", "1", "--budget", "1ms", "--json"]
    with pytest.raises(ConfigError, match=r"disk is full.*free disk space"):
        command.main([*argv, "--database", str(database)])
    told = json.loads(capsys.readouterr().out)
    assert told["rows"][0]["latency_ms"] > 0
    assert None is told["database"]
    assert "net" not in {each.model for each in read_profiles(database)}


def test_package_includes_database(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prediction without a database of the user needs only the model."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    model = _dense(tmp_path / "net.onnx")
    assert 0 == main(["predict", str(model), "--batch", "1,16"])
    assert "net: sum over 1 operators" in capsys.readouterr().out


def test_model_with_fixed_batch_is_predicted_for_its_size_only(
    tmp_path: Path, capsys: Captured
) -> None:
    """A model with a fixed batch size is predicted for that size only."""
    model, database = _dense(tmp_path / "net.onnx", 4), taught(tmp_path / "p.sqlite")
    argv = [str(model), "--batch", "1,4", "--database", str(database)]
    assert 1 == predict_command.main(argv)
    assert "takes only batches of 4" in capsys.readouterr().err


def test_control_flow_is_measured_as_a_whole(tmp_path: Path, capsys: Captured) -> None:
    """A model with control flow adds no operators to the database."""
    model, database = _branching(tmp_path / "net.onnx"), tmp_path / "p.sqlite"
    argv = [str(model), "--batch", "2", "--cpu", "1", "--budget", "1ms", "--json"]
    assert 0 == command.main([*argv, "--database", str(database)])
    captured = capsys.readouterr()
    assert "measuring only the whole model" in captured.err
    assert None is json.loads(captured.out)["database"]
    assert not database.exists()


def test_an_unknown_operator_is_named(tmp_path: Path) -> None:
    """The message says that the model can still be served."""
    model = _dense(tmp_path / "net.onnx", kind="Frobnicate", domain="odd")
    with pytest.raises(ConfigError, match=r"Frobnicate.*handler of your own can still serve it"):
        read_graph(model)
    with pytest.raises(LoadError, match="handler of your own can still serve it"):
        command.main([str(model), "--budget", "1ms"])


def test_a_size_at_which_a_model_fails_is_named(tmp_path: Path) -> None:
    """A batch fixed inside the model is found when it runs, and the message names the options."""
    path = tmp_path / "net.onnx"
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "shape"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([1, 8], np.int64), "shape")],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    with pytest.raises(LoadError, match=r"fails on inputs of \[4, 8\].*--batch and --dim"):
        command.main([str(path), "--batch", "1,4", "--cpu", "1", "--budget", "1ms"])


def test_missing_weights_are_refused_for_profiling_only(tmp_path: Path) -> None:
    """A prediction needs the shapes of the weights, and a measurement needs their values."""
    path = _dense(tmp_path / "net.onnx")
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    assert 1 == len(read_graph(path).operators)
    with pytest.raises(LoadError, match="in a separate file that is missing"):
        command.main([str(path), "--budget", "1ms"])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "expected an ONNX model with operators"),
        (b"\xff" * 50, "expected an ONNX model"),
        (b"version https://git-lfs.github.com/spec/v1\n", "run git lfs pull"),
    ],
)
def test_invalid_model_files_are_refused(tmp_path: Path, data: bytes, expected: str) -> None:
    """Empty files, corrupted files and pointers of Git LFS have different messages."""
    path = tmp_path / "net.onnx"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=expected):
        read_graph(path)


@pytest.mark.parametrize("name", [".", "b" * 300 + ".onnx", "gone.onnx"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    """A folder, an impossible file name and a missing file are refused."""
    with pytest.raises(ConfigError, match="expected an existing ONNX file"):
        read_graph(tmp_path / name)


def test_a_free_dimension_needs_a_size(tmp_path: Path) -> None:
    """Only the batch dimension may stay free."""
    path = _dense(tmp_path / "net.onnx", kind="MatMul")
    model = onnx.load(path)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims.insert(1, onnx.TensorShapeProto.Dimension(dim_param="words"))
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, path)
    with pytest.raises(ConfigError, match=r"'wrods'.*expected a free dimension .* batch, words"):
        read_graph(path, {"words": 3, "wrods": 3})
    with pytest.raises(ConfigError, match=r"free dimension 'words'.*set --dim words=SIZE"):
        read_graph(path)
    (operator,) = read_graph(path, {"words": 7}).operators
    assert (3, 7, 30) == operator.at(3).outputs[0].shape
