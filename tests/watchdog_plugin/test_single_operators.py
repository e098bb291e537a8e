"""Operators measured alone by the runtime, by ``carpool predict`` if the database lacks them."""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import tempfile
import time
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from carpool.errors import ConfigError
from carpool.onnx_graph.model_file import read_onnx
from carpool.onnx_graph.optimised import optimised
from carpool.predictor.composition import Footprint
from carpool.predictor.onnx_latency import read_operators
from carpool.predictor.profile import Alone, RefusedOperator, Setting
from carpool.predictor.profile_file import default_database
from watchdog_plugin.function import LoadError
from watchdog_plugin.profiling import (
    disturbance,
    predict_command,
    run_overhead,
    single_operators,
)
from watchdog_plugin.profiling.disturbance import Disturbance
from watchdog_plugin.profiling.operator_pair import OperatorPair, Step, predecessor
from watchdog_plugin.profiling.profiled_session import ProfiledSession
from watchdog_plugin.profiling.run_overhead import measure_overhead
from watchdog_plugin.profiling.single_operators import Wanted, measure_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from carpool.onnx_graph.operator_graph import Case

    Captured = pytest.CaptureFixture[str]

_SETTINGS = [Setting(1, 1), Setting(4, 1)]
_PROFILED_S = {1: 3e-6, 2: 3e-6}  # added to each operator by the runtime's profiler


def _odd(path: Path) -> Path:
    """Write a model with operators of kinds that no profile of the package has."""
    rng = np.random.default_rng(4)
    constants: dict[str, np.ndarray[Any, Any]] = {
        "kernel": rng.standard_normal((8, 4, 2, 2), np.float32),
        "scales": np.array([1, 1, 2, 2], np.float32),
        "weights": rng.integers(-9, 9, (256, 32)).astype(np.int8),
        "w": rng.standard_normal((1, 48, 32), np.float32),
        "r": rng.standard_normal((1, 48, 16), np.float32),
    }
    nodes = [
        helper.make_node("ConvTranspose", ["x", "kernel"], ["up"], strides=[2, 2]),
        helper.make_node("Resize", ["up", "", "scales"], ["large"], mode="linear"),
        helper.make_node("ReduceMean", ["large"], ["mean"], axes=[1], keepdims=0),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("DynamicQuantizeLinear", ["flat"], ["q", "qs", "qz"]),
        helper.make_node("MatMulInteger", ["q", "weights"], ["whole"]),
        helper.make_node("Cast", ["whole"], ["cast"], to=TensorProto.FLOAT),
        helper.make_node("Einsum", ["cast"], ["einsum"], equation="bi->bi"),
        helper.make_node("Unsqueeze", ["einsum", "axis"], ["steps"]),
        helper.make_node("GRU", ["steps", "w", "r"], ["y"], hidden_size=16),
    ]
    constants["axis"] = np.array([0], np.int64)
    graph = helper.make_graph(
        nodes,
        "odd",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_every_operator_of_a_model_is_measured_alone(tmp_path: Path) -> None:
    """Every operator is measured in every setting, and reported again only if its time changes."""
    path = _odd(tmp_path / "odd.onnx")
    best = optimised(path, read_onnx(path))
    wanted = [Wanted(at, _SETTINGS) for at in range(len(best.graph.operators))]
    seen: dict[tuple[Case, Setting], float] = {}
    for row in measure_alone(best, wanted, _PROFILED_S, 60.0, pytest.fail):
        assert isinstance(row, Alone)
        assert 0 <= row.seconds != seen.get((row.case, row.setting))
        seen[row.case, row.setting] = row.seconds
    assert [(o.at(s.batch), s) for o in best.graph.operators for s in _SETTINGS] == list(seen)


def _scripted(monkeypatch: pytest.MonkeyPatch, visit: Callable[[], Any]) -> None:
    """Let each visit find what ``visit`` returns: whether it was undisturbed, and the times."""
    monkeypatch.setattr(single_operators, "trivial_s", lambda _: 1e-6)
    monkeypatch.setattr(Disturbance, "runs", lambda *_: visit())


def test_refused_text_operators_are_not_tried_again(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime cannot bind strings, and the second prediction starts no measurement."""
    path, database = _textual(tmp_path / "text.onnx"), str(tmp_path / "p.sqlite")
    best = optimised(path, read_onnx(path))
    assert ["Equal", "Cast"] == [operator.op_type for operator in best.graph.operators]
    rows = list(measure_alone(best, [Wanted(0, _SETTINGS)], _PROFILED_S, 60.0, pytest.fail))
    assert [RefusedOperator(best.graph.operators[0].at(s.batch), s) for s in _SETTINGS] == rows
    argv = [str(path), "--batch", "4", "--database", database, "--json"]
    assert 0 == predict_command.main(argv)
    first = json.loads(capsys.readouterr().out)
    assert {"Equal": "predicted", "Cast": "measured"} == _source_of_each(first)
    monkeypatch.setattr(single_operators, "measure_alone", pytest.fail)
    assert 0 == predict_command.main(argv)
    second = json.loads(capsys.readouterr().out)
    assert 0 == second["measuring_s"]
    assert {"Equal": "predicted", "Cast": "known"} == _source_of_each(second)


def test_a_session_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a refused session nor one whose times are unused leaves a file."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(LoadError) as refused:  # which holds the session
        ProfiledSession(b"no model", tmp_path, 1, operators=True)
    assert (LoadError, []) == (refused.type, list(tmp_path.iterdir()))
    model = run_overhead.chain(1).SerializeToString()
    with ProfiledSession(model, tmp_path, 1, operators=True) as session:
        session.run_s(run_overhead.CHAIN_INPUTS)
        assert list(tmp_path.iterdir())
    assert [] == list(tmp_path.iterdir())


def test_measure_option_tries_refused_operators_again(tmp_path: Path, capsys: Captured) -> None:
    """``--measure`` does not measure known operators again."""
    path, database = _textual(tmp_path / "text.onnx"), str(tmp_path / "p.sqlite")
    argv = [str(path), "--batch", "4", "--database", database, "--json"]
    assert 0 == predict_command.main(argv)
    capsys.readouterr()
    assert 0 == predict_command.main([*argv, "--measure"])
    said = capsys.readouterr()
    assert "measuring 1 operators alone" in said.err
    assert {"Equal": "predicted", "Cast": "known"} == _source_of_each(json.loads(said.out))


def test_measurements_before_interrupt_are_kept(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next prediction measures only the other operators."""

    def interrupted(*args: Any) -> Iterator[Alone | RefusedOperator]:
        yield from itertools.islice(measure_alone(*args), 3)
        raise KeyboardInterrupt

    path, database = _odd(tmp_path / "odd.onnx"), tmp_path / "p.sqlite"
    argv = [str(path), "--batch", "4", "--database", str(database), "--json"]
    with monkeypatch.context() as patch:
        patch.setattr(single_operators, "measure_alone", interrupted)
        with pytest.raises(KeyboardInterrupt):
            predict_command.main(argv)
    assert 0 == predict_command.main(argv)
    sources = [each["source"] for each in json.loads(capsys.readouterr().out)["sources"]]
    assert 3 == sources.count("known")
    assert set(sources) == {"known", "measured"}


def test_progress_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message is written after every ten operators, and before they are measured again."""
    monkeypatch.setattr(single_operators, "_VISITS", 42)  # two passes
    monkeypatch.setattr(single_operators, "_MOST_VISITS", 99)
    _scripted(monkeypatch, lambda: (True, [(2.0, 1.0)]))
    path, said = _plain(tmp_path / "net.onnx"), list[str]()
    best = optimised(path, read_onnx(path))
    list(measure_alone(best, [Wanted(0, [Setting(1, 1)])] * 21, _PROFILED_S, 60.0, said.append))
    assert [
        "10 of 21 operators measured",
        "20 of 21 operators measured",
        "all operators measured, now 21 of them again",
    ] == said


def test_spent_budget_is_reported(tmp_path: Path) -> None:
    """The message has the number of remaining operators."""
    path, said = _odd(tmp_path / "odd.onnx"), list[str]()
    best = optimised(path, read_onnx(path))
    wanted = [Wanted(at, _SETTINGS) for at in range(3)]
    assert [] == list(measure_alone(best, wanted, _PROFILED_S, -1.0, said.append))
    assert ["the time budget is spent: 3 operators remain"] == said


@pytest.mark.timing
def test_overhead_per_run_is_positive() -> None:
    """The overhead of a run is positive; that per operator need not be."""
    assert 0 < measure_overhead(1).per_run_s < 1


def test_prediction_measures_missing_operators_once(tmp_path: Path, capsys: Captured) -> None:
    """A second prediction uses the stored measurements and does not start the runtime."""
    path, database = _odd(tmp_path / "odd.onnx"), tmp_path / "p.sqlite"
    argv = [str(path), "--batch", "1,4", "--database", str(database), "--json"]
    assert 0 == predict_command.main(argv)
    first = json.loads(capsys.readouterr().out)
    assert {"measured"} <= {each["source"] for each in first["sources"]} <= {"measured", "known"}
    assert first["measuring_s"] > 0
    assert len(_kinds(first)) == len({"GRU", "Einsum", "ConvTranspose"} | _kinds(first))
    assert 0 == predict_command.main(argv)
    second = json.loads(capsys.readouterr().out)
    assert {"known"} == {each["source"] for each in second["sources"]}
    assert 0 == second["measuring_s"]
    assert first["rows"] == second["rows"]


def test_no_measure_option_refuses_unknown_kinds_by_name(tmp_path: Path, capsys: Captured) -> None:
    """The message names Einsum, whose time follows from no other operator, and the fix."""
    path = _odd(tmp_path / "odd.onnx")
    argv = [str(path), "--no-measure", "--database", str(default_database())]
    assert 1 == predict_command.main(argv)
    assert "Einsum has not been measured; --measure measures" in capsys.readouterr().err


def test_nothing_is_measured_for_another_machine(tmp_path: Path, capsys: Captured) -> None:
    """The prediction uses the laws of this processor; text and interval show the uncertainty."""
    path, database = _plain(tmp_path / "net.onnx"), str(default_database())
    argv = [str(path), "--batch", "4", "--hardware", "another", "--database", database]
    assert 0 == predict_command.main([*argv, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert [True, "another", 0] == [
        document["foreign"],
        document["target"]["hardware"],
        document["measuring_s"],
    ]
    (row,) = document["rows"]
    assert row["high_ms"] > 3 * row["latency_ms"] > 9 * row["low_ms"]
    assert 0 == predict_command.main(argv)
    assert "machine or runtime than another, " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--hardware", "another"], "--hardware = 'another'"),
        (["--gpu", "20"], "--gpu = '20'"),
        (["--cpu", "1,4096"], "--cpu = '4096'"),
    ],
)
def test_measuring_for_another_machine_is_refused(
    tmp_path: Path, options: list[str], named: str
) -> None:
    """The error names the option that contradicts ``--measure``."""
    path, database = _plain(tmp_path / "net.onnx"), tmp_path / "p.sqlite"
    argv = [str(path), "--measure", "--database", str(database), *options]
    with pytest.raises(ConfigError, match=f"{named}.*with --measure"):
        predict_command.main(argv)
    assert not database.exists()


def test_both_branches_are_measured(tmp_path: Path, capsys: Captured) -> None:
    """Both branches are measured, as a run may take either."""
    path, database = _branching(tmp_path / "if.onnx"), str(tmp_path / "p.sqlite")
    assert 0 == predict_command.main([str(path), "--batch", "64", "--database", database, "--json"])
    document = json.loads(capsys.readouterr().out)
    (branch,) = [each for each in document["sources"] if each["kind"] == "If"]
    assert "measured" == branch["source"]
    with closing(sqlite3.connect(database)) as connection, connection:
        ways = connection.execute(
            "SELECT attributes FROM kinds k JOIN cases c ON c.kind = k.id"
            ' JOIN measured_alone a ON a."case" = c.id WHERE k.kind = ? ORDER BY 1',
            ("If",),
        )
        assert ["else_branch", "then_branch"] == [json.loads(way)["taken"] for (way,) in ways]
    assert 1 == predict_command.main(
        [str(path), "--database", str(default_database()), "--no-measure"]
    )
    assert "If has not been measured" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["Scan", "Loop"])
def test_counted_loop_is_measured_as_a_whole(tmp_path: Path, capsys: Captured, kind: str) -> None:
    """All steps are measured together, and the next operator has the loop's output shape."""
    path, database = _looping(tmp_path / "loop.onnx", kind), str(tmp_path / "p.sqlite")
    assert 0 == predict_command.main([str(path), "--batch", "4", "--database", database, "--json"])
    document = json.loads(capsys.readouterr().out)
    sources = {each["kind"]: each for each in document["sources"]}
    assert "measured" == sources[kind]["source"]
    assert sources["Tanh"]["shapes"].partition(">")[0] in sources[kind]["shapes"].partition(">")[2]


def test_loop_with_data_dependent_end_is_refused_by_name(tmp_path: Path) -> None:
    """Neither shapes nor constants determine the number of its steps."""
    path = _looping(tmp_path / "loop.onnx", "Loop", ends_by_values=True)
    with pytest.raises(ConfigError, match=r"operator Loop .*its end depends on values"):
        predict_command.main([str(path), "--database", str(default_database()), "--no-measure"])


def _branching(path: Path) -> Path:
    """Write a model with a product of 512 columns if the sum is not 0, and a negation otherwise."""
    ends = [helper.make_tensor_value_info("q", TensorProto.FLOAT, ["batch", 512])]
    much = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["q"])]
    little = [helper.make_node("Neg", ["x"], ["q"])]
    branches = {
        f"{name}_branch": helper.make_graph(nodes, name, [], ends)
        for name, nodes in (("then", much), ("else", little))
    }
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["yes"], to=TensorProto.BOOL),
        helper.make_node("If", ["yes"], ["q"], **branches),
        helper.make_node("Tanh", ["q"], ["y"]),
    ]
    return _with_weights(path, nodes, ["batch", 512], 512)


def _looping(path: Path, kind: str, *, ends_by_values: bool = False) -> Path:
    """Write a model with a loop of twenty products of its carried state."""

    def value(name: str, shape: list[int | str] | None, datatype: int = TensorProto.FLOAT) -> Any:
        return helper.make_tensor_value_info(name, datatype, shape)

    step = [helper.make_node("MatMul", ["h", "w"], ["m"]), helper.make_node("Tanh", ["m"], ["h2"])]
    if kind == "Scan":
        step.append(helper.make_node("Add", ["h2", "xt"], ["o"]))
        ends = [value(name, ["batch", 128]) for name in ("h", "xt", "h2", "o")]
        body = helper.make_graph(step, "body", ends[:2], ends[2:])
        nodes = [
            helper.make_node("ReduceMean", ["x"], ["h0"], axes=[1], keepdims=0),
            helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
            helper.make_node("Scan", ["h0", "t"], ["last", "all"], body=body, num_scan_inputs=1),
            helper.make_node("Tanh", ["all"], ["y"]),
        ]
        return _with_weights(path, nodes, ["batch", 20, 128], 128)
    step.append(helper.make_node("Identity", ["c"], ["c2"]))
    if ends_by_values:
        step[-1:] = [
            helper.make_node("ReduceSum", ["h2"], ["sum"], keepdims=0),
            helper.make_node("Cast", ["sum"], ["c2"], to=TensorProto.BOOL),
        ]
    inputs = [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("h", None)]
    body = helper.make_graph(
        step, "body", inputs, [value("c2", [], TensorProto.BOOL), value("h2", None)]
    )
    nodes = [
        helper.make_node("Loop", ["often", "", "x"], ["q"], body=body),
        helper.make_node("Tanh", ["q"], ["y"]),
    ]
    return _with_weights(path, nodes, ["batch", 128], 128)


def _with_weights(
    path: Path, nodes: list[onnx.NodeProto], shape: list[int | str], width: int
) -> Path:
    rng = np.random.default_rng(6)
    weights = numpy_helper.from_array(rng.standard_normal((width, width), np.float32), "w")
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weights, numpy_helper.from_array(np.array(20, np.int64), "often")],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def _plain(path: Path) -> Path:
    weight = numpy_helper.from_array(np.ones((40, 30), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 40])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 30])],
        [weight],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def _textual(path: Path) -> Path:
    """Write a model that compares words with one word."""
    nodes = [
        helper.make_node("Equal", ["words", "word"], ["same"]),
        helper.make_node("Cast", ["same"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes,
        "text",
        [helper.make_tensor_value_info("words", TensorProto.STRING, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])],
        [numpy_helper.from_array(np.array(["word"], np.object_), "word")],
    )
    opsets = [helper.make_opsetid("", 19)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


def _source_of_each(document: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    return {each["kind"]: each["source"] for each in document["sources"]}


def _kinds(document: dict[str, list[dict[str, str]]]) -> set[str]:
    return {each["kind"].rpartition(".")[2] for each in document["sources"]}


def test_a_scenario_refuses_unmeasured_kinds(tmp_path: Path) -> None:
    """The error names the kinds and the command that measures them, not sizes."""
    path = _odd(tmp_path / "odd.onnx")
    with pytest.raises(ConfigError, match=r"Einsum.*carpool predict measures them"):
        read_operators(path, default_database())


def test_an_operator_runs_after_its_predecessor(tmp_path: Path) -> None:
    """It reads what its predecessor has written, whatever the two are, and a product runs first."""
    path = _odd(tmp_path / "odd.onnx")
    best = optimised(path, read_onnx(path))
    steps = [*map(Step, best.model.graph.node, best.graph.operators)]
    values = single_operators._shape_values(best, 2)
    for position, step in enumerate(steps[1:], 1):
        before = predecessor(best, position)
        assert before is not None
        pair = OperatorPair(best.model, [before, step], 1, None)
        arrays = pair.bind(2, values)
        own = arrays[0]
        own.reshape(-1).view(np.uint8)[:] = 7
        pair.run_s(lambda: None)
        assert (own.reshape(-1).view(np.uint8) != 7).any()


def test_views_and_large_predecessors_are_left_out(tmp_path: Path) -> None:
    """A view computes nothing, so that what runs before it counts; large weights are not copied."""
    path = _odd(tmp_path / "odd.onnx")
    best = optimised(path, read_onnx(path))
    kinds = [operator.op_type for operator in best.graph.operators]
    after_view = kinds.index("DynamicQuantizeLinear")
    found = predecessor(best, after_view)
    assert found is not None
    assert ("Flatten", "ReduceMean") == (kinds[after_view - 1], found.operator.op_type)
    assert predecessor(best, 0) is None
    path = _with_weights(
        tmp_path / "large.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Tanh", ["m"], ["y"])],
        ["batch", 4200],
        4200,
    )
    assert predecessor(optimised(path, read_onnx(path)), 1) is None


def test_an_operator_is_measured_without_a_refused_predecessor(tmp_path: Path) -> None:
    """The runtime cannot bind the strings that `Equal` reads, but measures the next operator."""
    path = _textual(tmp_path / "text.onnx")
    best = optimised(path, read_onnx(path))
    (row, *_) = measure_alone(best, [Wanted(1, [Setting(4, 1)])], _PROFILED_S, 60.0, pytest.fail)
    assert isinstance(row, Alone)


def test_an_operator_takes_as_long_as_it_prolongs_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of its predecessor are subtracted, and what the profiler would add is added."""
    runs: dict[int, int] = {}

    def run_s(session: ProfiledSession) -> float:
        outputs = len(session._session.get_outputs())
        runs[outputs] = runs.get(outputs, 0) + 1
        session.cpu_s = {2: 5e-5, 3: 2.05e-3}[outputs]
        return 9.0  # by the wall's clock, which does not count on one thread

    monkeypatch.setattr(ProfiledSession, "run_bound_s", run_s)
    path = _odd(tmp_path / "odd.onnx")
    best = optimised(path, read_onnx(path))
    (row,) = measure_alone(best, [Wanted(1, [Setting(1, 1)])], _PROFILED_S, 60.0, pytest.fail)
    assert isinstance(row, Alone)
    assert pytest.approx(2e-3 + 3e-6) == row.seconds
    assert runs[2] == runs[3]


def test_undisturbed_visits_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The medians of undisturbed visits with and without the operator count, or the fastest."""
    path = _plain(tmp_path / "net.onnx")
    best = optimised(path, read_onnx(path))
    visits = iter(
        [
            (False, [(9.0, 4.0)]),
            (False, [(9.0, 6.0)]),
            (True, [(7.0, 6.0)]),
            (True, [(8.0, 3.0)]),
            (False, [(1.0, 1.0)]),
            (True, [(6.0, 2.0)]),
        ]
    )
    _scripted(monkeypatch, lambda: next(visits))
    rows = [*measure_alone(best, [Wanted(0, [Setting(1, 1)])], {1: 0.0}, 60.0, pytest.fail)]
    assert [5.0, 1.0, 4.0] == [row.seconds for row in rows if isinstance(row, Alone)]
    assert [] == list(visits)


def test_disturbed_operators_are_measured_first_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all settings, those with the fewest undisturbed visits are measured next."""
    path = _plain(tmp_path / "net.onnx")
    best = optimised(path, read_onnx(path))
    asked: list[int] = []

    def visit() -> tuple[bool, list[tuple[float, float]]]:
        asked.append(len(asked))
        return asked[-1] not in (1, 2), [(2.0, 1.0 / (1 + len(asked)))]

    monkeypatch.setattr(single_operators, "_VISITS", 2)
    _scripted(monkeypatch, visit)
    settings = [Setting(1, 1), Setting(2, 1)]
    rows = [*measure_alone(best, [Wanted(0, settings)], {1: 0.0}, 60.0, pytest.fail)]
    order = [row.setting.batch for row in rows]
    # The second is disturbed twice, and so is measured until it has as many visits as the first.
    assert [1, 2, 2, 2, 1, 2] == order


def test_operators_are_not_measured_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all visits are disturbed, there are eight of each setting."""
    path, asked = _plain(tmp_path / "net.onnx"), list[int]()
    best = optimised(path, read_onnx(path))

    def visit() -> tuple[bool, list[tuple[float, float]]]:
        asked.append(1)
        return False, [(2.0, 1.0)]

    _scripted(monkeypatch, visit)
    list(measure_alone(best, [Wanted(0, _SETTINGS)], {1: 0.0}, 60.0, pytest.fail))
    assert 8 * len(_SETTINGS) == len(asked)


def test_half_the_memory_is_moved_before_each_of_two_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two uses of the operator's weights as much is moved as the model moves."""
    moved: list[int] = []
    monkeypatch.setattr(single_operators._Mover, "move", lambda _, size, __: moved.append(size))
    path = _with_weights(
        tmp_path / "net.onnx",
        [
            helper.make_node("MatMul", ["x", "w"], ["m"]),
            helper.make_node("MatMul", ["m", "w"], ["y"]),
        ],
        ["batch", 700],
        700,
    )
    best = optimised(path, read_onnx(path))
    list(measure_alone(best, [Wanted(0, [Setting(1, 1)])], {1: 0.0}, 60.0, pytest.fail))
    moved_mb = Footprint(best.graph).moved_mb(best.graph.operators[0].at(1), 1)
    assert {(moved_mb << 20) // 2} == set(moved)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_all_memory_is_moved_by_any_number_of_cores(count: int) -> None:
    """The cores' parts together are the whole block, and arrays keep their values."""
    blocks = np.stack([np.zeros(1 << 18), np.arange(1 << 18, dtype=float)])
    here = min(os.sched_getaffinity(0))
    values = np.arange(7.0)
    with single_operators._Mover(blocks, [here] * count) as mover:
        mover.move(1 << 20, [values, np.full((), 2.0)])
    assert count - 1 == len(mover._others)
    moved = (1 << 20) // 16
    assert np.array_equal(blocks[0, :moved], blocks[1, :moved])
    assert not blocks[0, moved:].any()
    assert [0, 1, 2, 3, 4, 5, 6] == values.tolist()


def test_time_limit_holds_where_each_run_takes_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the operator that is being measured may finish its first run after the limit."""
    now_s, run = [0.0], ProfiledSession.run_bound_s

    def slow(session: ProfiledSession) -> float:
        now_s[0] += 1.0
        return run(session)

    monkeypatch.setattr(ProfiledSession, "run_bound_s", slow)
    clocks = SimpleNamespace(monotonic=lambda: now_s[0], thread_time=time.thread_time)
    for module in (single_operators, disturbance):
        monkeypatch.setattr(module, "time", clocks)
    path, said = _odd(tmp_path / "odd.onnx"), list[str]()
    best = optimised(path, read_onnx(path))
    settings = [Setting(batch, 1) for batch in (1, 2, 4, 8)]
    rows = list(
        measure_alone(
            best, [Wanted(0, settings), Wanted(1, settings)], _PROFILED_S, 5.0, said.append
        )
    )
    assert [Setting(1, 1)] == [row.setting for row in rows]
    assert ["the time budget is spent: 1 operators remain"] == said
    assert 5.0 < now_s[0] <= 12.0
