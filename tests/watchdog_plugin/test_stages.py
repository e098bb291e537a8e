"""Cutting of a model: the possible cuts, the chosen ones, and unchanged outputs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from carpool.errors import ConfigError
from carpool.predictor.profile_file import default_database, opened
from carpool.processor import processor
from tests.watchdog_plugin import models
from tests.watchdog_plugin.cutting import GivenTimes, cut
from watchdog_plugin.function import LoadError
from watchdog_plugin.onnx.session import OnnxSession
from watchdog_plugin.stage_cutting import command, sample
from watchdog_plugin.stage_cutting.balance import Point, choose
from watchdog_plugin.stage_cutting.chain import Chain
from watchdog_plugin.stage_cutting.cut import ROWS, Cutter
from watchdog_plugin.stage_cutting.cut_planner import CutPlanner
from watchdog_plugin.stage_cutting.folder import LIST, StageFolder
from watchdog_plugin.stage_cutting.operator_times import OperatorTimes
from watchdog_plugin.stage_cutting.stage_measurements import Meter, Pieces, checked_chain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

make = helper.make_node
FLOAT = TensorProto.FLOAT


def cutter(path: Path) -> tuple[Cutter, OnnxSession]:
    """Return a cutter and a session of the model at ``path``."""
    whole = OnnxSession(path, 1)
    tries = [sample.feeds(whole.signature, rows) for rows in ROWS]
    return Cutter(onnx.load(path), (tries[0], tries[1])), whole


def points(made: Cutter) -> list[int]:
    """Return the numbers of nodes after which a model with equal node times can be cut."""
    return [point.after for point in made.points([1e-3] * len(made.sequence.nodes))]


def chain(made: Cutter, whole: OnnxSession, folder: Path, after: Sequence[int]) -> Chain:
    """Return the model cut after the given nodes."""
    chosen = [Point(number, 0.0, 0.0) for number in after]
    sessions = []
    for number, stage in enumerate(made.stages(chosen)):
        onnx.save(stage, folder / f"{number}.onnx")
        sessions.append(OnnxSession(folder / f"{number}.onnx", 1))
    return Chain(sessions, list(whole.signature.outputs))


def test_free_cuts_make_equal_stages() -> None:
    """With a possible cut at every millisecond, the chosen cuts make equal stages."""
    even = [Point(number, number / 1000, 0.0) for number in range(1, 12)]

    assert [3, 6, 9] == [point.after for point in choose(even, 0.012, 4)]


def test_narrow_cut_is_preferred_to_nearby_wide_one() -> None:
    """Handing over a second's worth of data is worse than slightly unequal stages."""
    mixed = [Point(4, 0.004, 1e-5), Point(5, 0.005, 1.0), Point(6, 0.006, 2e-5)]

    assert [4] == [point.after for point in choose(mixed, 0.01, 2)]


def test_fewer_possible_cuts_give_fewer_stages() -> None:
    """With one possible cut it is chosen, and without any there is none."""
    assert [1] == [point.after for point in choose([Point(1, 0.5, 0.0)], 1.0, 8)]
    assert not choose([], 1.0, 8)


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_cut_inside_residual_block_hands_over_both_tensors(tmp_path: Path, rows: int) -> None:
    """A cut inside a block hands over two tensors, and outputs equal those of the whole model."""
    made, whole = cutter(models.deep(tmp_path / "deep.onnx"))
    feeds = sample.feeds(whole.signature, rows)
    found = chain(made, whole, tmp_path, points(made)).run_all(feeds)

    assert len(made.sequence.nodes) - 1 == len(points(made))
    np.testing.assert_allclose(found["y"], whole.run(feeds)["y"], rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_recurrent_layers_hand_over_rows_first(tmp_path: Path, rows: int) -> None:
    """LSTM layers have the steps first, but stages hand over tensors with the rows first."""
    made, whole = cutter(models.lstm_stack(tmp_path / "lstm.onnx", layers=4))
    feeds = sample.feeds(whole.signature, rows)
    after = points(made)
    parts = chain(made, whole, tmp_path, after)
    values = parts.run(0, feeds)

    layers = [at for at, node in enumerate(made.sequence.nodes) if node.op_type == "LSTM"]
    assert len([at for at in layers if at in after]) == 4  # a stage may begin with each
    assert {rows} == {len(value) for value in values.values()}
    np.testing.assert_allclose(
        parts.run_all(feeds)["y"], whole.run(feeds)["y"], rtol=1e-5, atol=1e-6
    )


@pytest.mark.slow
def test_a_stack_of_recurrent_layers_is_cut_into_its_layers(tmp_path: Path) -> None:
    """The operator profiles alone show that the layers take the time."""
    path = models.lstm_stack(tmp_path / "lstm.onnx", layers=4, width=256)
    planner = CutPlanner(path, 1, {"steps": 200}, OperatorTimes(default_database()))
    best, _ = planner.best(8, 0.03)

    assert not planner.unpredicted
    assert best is not None
    assert 4 == best.stages
    assert max(best.trial.stage_s) < 0.3 * sum(best.trial.stage_s)


def test_missing_database_is_refused(tmp_path: Path) -> None:
    """A missing database is an error and not replaced by a measurement."""
    path = models.deep(tmp_path / "model.onnx")
    with pytest.raises(ConfigError, match=r"typo\.sqlite.*an existing profile database"):
        command.main([str(path), "--database", str(tmp_path / "typo.sqlite")])


@pytest.mark.slow
def test_cuts_are_deterministic(tmp_path: Path) -> None:
    """All written files are equal byte for byte, as nothing is measured."""
    path = models.deep(tmp_path / "model.onnx", width=512)
    for folder in ("first", "second"):
        planner = CutPlanner(path, 1, {}, OperatorTimes(default_database()))
        best, _ = planner.best(8, 0.1)
        assert best is not None
        planner.write(best, tmp_path / folder)
    first, second = (
        {f.name: f.read_bytes() for f in (tmp_path / n).iterdir()} for n in ("first", "second")
    )

    assert first == second
    assert json.loads(first[LIST])["batch_s"]["1"] > 0


def test_operators_without_profile_are_measured_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With an empty database, the output says that times were measured."""
    path = models.deep(tmp_path / "model.onnx", layers=3)
    database = tmp_path / "empty.sqlite"
    with opened(database, write=True):
        pass
    argv = [str(path), "--database", str(database), "--loss", "9"]

    assert 0 == command.main(argv)
    assert "measured, so another run may differ" in capsys.readouterr().out


def test_no_cut_at_tensor_without_rows(tmp_path: Path) -> None:
    """There is no cut at a tensor without one row per request, as no request could join there."""
    nodes = [
        make("Reshape", ["x", "pairs"], ["p"]),
        make("Tanh", ["p"], ["t"]),
        make("Shape", ["x"], ["s"]),
        make("Reshape", ["t", "s"], ["r"]),
        make("Tanh", ["r"], ["u"]),
        make("Add", ["u", "u"], ["y"]),
    ]
    ends: tuple[int, models.Dims] = (FLOAT, ["batch", 4])
    path = models.save(
        tmp_path / "odd.onnx", nodes, {"x": ends}, {"y": ends}, {"pairs": np.array([-1, 2])}
    )

    assert [4, 5] == points(cutter(path)[0])


def test_tensors_of_constants_are_not_handed_over(tmp_path: Path) -> None:
    """A tensor computed from constants has no rows and is not handed over."""
    nodes = [
        make("Neg", ["w"], ["minus"]),
        make("Add", ["x", "minus"], ["a"]),
        make("Tanh", ["a"], ["t"]),
        make("Mul", ["t", "minus"], ["y"]),
    ]
    ends: tuple[int, models.Dims] = (FLOAT, ["batch", 3])
    path = models.save(
        tmp_path / "constant.onnx", nodes, {"x": ends}, {"y": ends}, {"w": np.ones(3, np.float32)}
    )
    made, whole = cutter(path)
    feeds = sample.feeds(whole.signature, 3)
    parts = chain(made, whole, tmp_path, [1, 2])

    assert [1, 2] == points(made)
    np.testing.assert_array_equal(parts.run_all(feeds)["y"], whole.run(feeds)["y"])


def test_early_output_is_kept_until_end(tmp_path: Path) -> None:
    """An output of an early stage is kept until the end."""
    nodes = [
        make("Tanh", ["x"], ["early"]),
        make("Exp", ["early"], ["e"]),
        make("Add", ["e", "early"], ["late"]),
    ]
    ends: tuple[int, models.Dims] = (FLOAT, ["batch", 3])
    path = models.save(tmp_path / "two.onnx", nodes, {"x": ends}, {"early": ends, "late": ends})
    made, whole = cutter(path)
    feeds = sample.feeds(whole.signature, 2)
    found = chain(made, whole, tmp_path, points(made)).run_all(feeds)

    assert {"early", "late"} == found.keys()
    for name, value in whole.run(feeds).items():
        np.testing.assert_array_equal(found[name], value)


def test_command_writes_and_lists_stages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If cuts cost nothing, the requested number of stages is written."""
    path = models.deep(tmp_path / "model.onnx", layers=6)
    out = tmp_path / "stages"
    argv = [str(path), "--stages", "3", "--out", str(out), "--json"]

    assert 0 == command.main(argv, GivenTimes())
    told = json.loads(capsys.readouterr().out)
    known = StageFolder.read(out, path)
    assert known is not None
    assert 3 == told["stages"] == len(known.files)
    assert list(known.files) == told["files"]


def test_command_reports_model_without_good_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A single node cannot be cut."""
    assert 0 == command.main([str(models.doubler(tmp_path / "one.onnx"))], GivenTimes())
    assert "no good cut" in capsys.readouterr().out


@pytest.mark.parametrize(("loss_per_cut", "stages"), [(0.0, 8), (0.01, 4), (0.02, 2), (0.04, 1)])
def test_most_stages_within_loss_limit_are_chosen(
    tmp_path: Path, loss_per_cut: float, stages: int
) -> None:
    """The most stages are chosen whose cuts lose at most 3 %; one stage is the whole model."""
    planner = CutPlanner(models.deep(tmp_path / "model.onnx"), 1, {}, GivenTimes(loss_per_cut))
    best, tried = planner.best(8, 0.03)

    assert stages == (best.stages if best else 1)
    assert [8] == [cut.stages for cut in tried][:1]
    assert stages == 1 or tried[-1] is best


def test_measured_times_are_positive(tmp_path: Path) -> None:
    """The measured times of nodes, whole model and stages are positive."""
    path = models.deep(tmp_path / "model.onnx", layers=6)
    made, whole = cutter(path)
    feeds = sample.feeds(whole.signature, 1)
    node_s = Meter().node_seconds(path, made.sequence.nodes, whole, feeds, 1)
    parts = chain(made, whole, tmp_path, points(made)[:2])
    trial = Meter().trial(Pieces(path, whole, (), parts, feeds, 2), brief=True)

    assert len(made.sequence.nodes) == len(node_s)
    assert sum(node_s) > 0
    assert 3 == len(trial.stage_s)
    assert min(trial.whole_s, *trial.stage_s) > 0


def test_changed_model_is_detected(tmp_path: Path) -> None:
    """A changed model of the same size is detected, and the message names the command to run."""
    path = models.deep(tmp_path / "model.onnx", layers=2)
    cut(path, 2, tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

    with pytest.raises(LoadError, match=r"not the stages of.*carpool stages"):
        StageFolder.read(tmp_path, path)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], "expected names"),
        ("model.1.onnx", "expected names"),
        ([[1]], "expected names"),
        (["../model.onnx"], "expected names"),
        (["model.1.onnx", "model.9.onnx"], "no such file"),
    ],
)
def test_invalid_stage_list_is_refused(tmp_path: Path, files: object, expected: str) -> None:
    """The list must name existing files in its own folder."""
    path = models.deep(tmp_path / "model.onnx", layers=2)
    cut(path, 2, tmp_path)
    known = json.loads((tmp_path / LIST).read_text("utf-8"))
    (tmp_path / LIST).write_text(json.dumps({**known, "files": files}), "utf-8")

    with pytest.raises(LoadError, match=expected):
        StageFolder.read(tmp_path, path)


def test_files_of_former_stages_are_removed(tmp_path: Path) -> None:
    """Files that only the former list names are removed."""
    path = models.deep(tmp_path / "model.onnx")
    for stages in (4, 2):
        cut(path, stages, tmp_path / "s")

    left = {LIST, "model.1.onnx", "model.2.onnx"}
    assert left == {entry.name for entry in (tmp_path / "s").iterdir()}


def test_changed_external_weights_are_detected(tmp_path: Path) -> None:
    """Changed weights in a separate file are detected, although the model file is the same."""
    model = onnx.load(models.deep(tmp_path / "inline.onnx", layers=2))
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="all.bin", size_threshold=0)
    cut(path, 2, tmp_path)
    known = StageFolder.read(tmp_path, path)
    assert known is not None
    assert ["all.bin"] == list(known.weights_sha256)
    weights = tmp_path / "all.bin"
    weights.write_bytes(bytes([weights.read_bytes()[0] ^ 1]) + weights.read_bytes()[1:])

    with pytest.raises(LoadError, match=r"not the stages of.*carpool stages"):
        StageFolder.read(tmp_path, path)


def test_batch_times_apply_to_one_machine_only(tmp_path: Path) -> None:
    """There are no times for another number of threads, another processor or an unknown one."""
    path = models.deep(tmp_path / "model.onnx", width=512)
    planner = CutPlanner(path, 1, {}, OperatorTimes(default_database()))
    best, _ = planner.best(8, 0.1)
    assert best is not None
    planner.write(best, tmp_path)
    known = StageFolder.read(tmp_path, path)

    assert known is not None
    assert 4 == len(known.seconds(4, 1, processor()))
    assert [] == known.seconds(4, 2, processor())
    assert [] == known.seconds(4, 1, "another processor")
    assert [] == replace(known, threads=0, hardware="").seconds(4, 1, processor())


def test_too_large_model_is_refused_before_loading(tmp_path: Path) -> None:
    """Weights above the limit of an ONNX file are refused; here they are a sparse file."""
    place = onnx.TensorProto.EXTERNAL
    weight = onnx.TensorProto(
        name="w", data_type=FLOAT, dims=[1 << 15, 1 << 15], data_location=place
    )
    weight.external_data.add(key="location", value="w.bin")
    rows: models.Dims = ["batch", 1 << 15]
    ends = [helper.make_tensor_value_info(name, FLOAT, rows) for name in "xy"]
    graph = helper.make_graph(
        [make("MatMul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weight]
    )
    onnx.save(helper.make_model(graph), tmp_path / "large.onnx")
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(1 << 32)

    with pytest.raises(
        LoadError, match=r"4294967296 bytes of weights: expected at most 2147483647"
    ):
        command.main([str(tmp_path / "large.onnx")])


def test_equal_non_finite_outputs_match(tmp_path: Path) -> None:
    """Equal infinities and NaN in both outputs count as equal."""
    nodes = [
        make("Log", ["x"], ["a"]),  # of a number below 0, none at all
        make("Div", ["one", "zero"], ["endless"]),
        make("Add", ["a", "endless"], ["y"]),
    ]
    ends: tuple[int, models.Dims] = (FLOAT, ["batch", 64])
    constants = {"one": np.ones(1, np.float32), "zero": np.zeros(1, np.float32)}
    path = models.save(tmp_path / "odd.onnx", nodes, {"x": ends}, {"y": ends}, constants)
    whole = OnnxSession(path, 1)
    feeds = sample.feeds(whole.signature, 3)
    assert np.isnan(whole.run(feeds)["y"]).any()
    assert np.isinf(whole.run(feeds)["y"]).any()

    assert 2 == len(checked_chain(whole, cut(path, 2, tmp_path / "s"), [feeds], 1))


def test_infinite_output_in_place_of_number_is_refused(tmp_path: Path) -> None:
    """Stages of another model that divide one value by zero are refused."""
    ends: tuple[int, models.Dims] = (FLOAT, ["batch", 4])
    nodes = [make("Div", ["x", "by"], ["d"]), make("Identity", ["d"], ["y"])]
    paths = [
        models.save(tmp_path / f"{at}.onnx", nodes, {"x": ends}, {"y": ends}, {"by": by})
        for at, by in enumerate((np.ones(4, np.float32), np.eye(4, dtype=np.float32)[0]))
    ]
    whole, other = (OnnxSession(path, 1) for path in paths)
    feeds = sample.feeds(whole.signature, 2)
    for one, two in ((whole, paths[1]), (other, paths[0])):
        with pytest.raises(LoadError, match="output 'y' of the stages is"):
            checked_chain(one, [two], [feeds], 1)


def test_stages_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    """Stages in another order or without the last one are refused."""
    path = models.deep(tmp_path / "model.onnx")
    first, second, third = (OnnxSession(file, 1) for file in cut(path, 3, tmp_path / "s"))

    with pytest.raises(ValueError, match="stage 2 reads"):
        Chain([first, third, second], ["y"], ["x"])
    with pytest.raises(ValueError, match="answers with y"):
        Chain([first, second], ["y"], ["x"])


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--stages", "1"], "at least 2"),
        (["--loss", "nan"], "expected a share"),
        (["--loss", "-1"], "expected a share"),
    ],
)
def test_flags_are_read_strictly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], expected: str
) -> None:
    """An invalid value is refused with what was expected."""
    path = models.doubler(tmp_path / "one.onnx")

    with pytest.raises(SystemExit):
        command.main([str(path), *flags])
    assert expected in capsys.readouterr().err


def test_invalid_arguments_are_refused_before_search(tmp_path: Path) -> None:
    """An unknown dimension and a folder that cannot be created are refused."""
    path = models.deep(tmp_path / "model.onnx", layers=2)

    with pytest.raises(LoadError, match=r"dimension nope.*none"):
        command.main([str(path), "--dim", "nope=3"])
    with pytest.raises(LoadError, match="--out"):
        command.main([str(path), "--out", str(path / "stages")])


def test_no_folder_is_left_without_good_cut(tmp_path: Path) -> None:
    """No empty folder is left."""
    out = tmp_path / "stages"
    command.main([str(models.doubler(tmp_path / "one.onnx")), "--out", str(out)], GivenTimes())

    assert not out.exists()
