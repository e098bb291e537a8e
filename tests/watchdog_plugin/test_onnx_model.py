"""A model over several requests: the same answers as one by one, and only the offender fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from carpool.errors import BadRequest
from tests.watchdog_plugin import models
from watchdog_plugin import answers
from watchdog_plugin.function import LoadError
from watchdog_plugin.onnx.model import OnnxModel
from watchdog_plugin.protocols.tensors import Call

if TYPE_CHECKING:
    from pathlib import Path


def call(**inputs: Any) -> Call:
    """A request with these inputs."""
    rows = len(next(iter(inputs.values())))
    return Call(inputs, rows, [answers.json_answer])


def arrays(results: list[Any], name: str) -> list[Any]:
    """One output of every result."""
    return [result[name] for result in results]


@pytest.mark.parametrize("count", range(1, 9))
def test_a_batch_answers_as_its_requests_alone(tmp_path: Path, count: int) -> None:
    """For floats within 1e-5, for integers exactly, at every batch size and with several rows."""
    random = np.random.default_rng(count)
    model = OnnxModel(models.mlp(tmp_path / "f.onnx"), 1)
    rows = [1 + index % 3 for index in range(count)]
    calls = [call(x=random.standard_normal((n, 4)).astype(np.float32)) for n in rows]
    together = arrays(model.run(calls), "y")
    assert rows == [len(y) for y in together]
    for one, y in zip(calls, together, strict=True):
        np.testing.assert_allclose(y, arrays(model.run([one]), "y")[0], rtol=1e-5)
    whole = OnnxModel(models.doubler(tmp_path / "i.onnx"), 1)
    numbers = [random.integers(-(2**60), 2**60, (n, 3)) for n in rows]
    results = arrays(whole.run([call(x=x) for x in numbers]), "y")
    for x, y in zip(numbers, results, strict=True):
        assert (2 * x).tolist() == y.tolist()


def test_requests_of_other_shapes_are_runs_of_their_own(tmp_path: Path) -> None:
    """And come back in their places."""
    model = OnnxModel(models.row_sum(tmp_path / "m.onnx"), 1)
    widths = [2, 5, 2, 1, 5]
    results = model.run([call(x=np.ones((1, width), np.float32)) for width in widths])
    assert [[2.0], [5.0], [2.0], [1.0], [5.0]] == [y.tolist() for y in arrays(results, "sum")]


def test_only_the_offender_fails(tmp_path: Path) -> None:
    """An index out of the table is its caller's 400."""
    model = OnnxModel(models.lookup(tmp_path / "m.onnx"), 1)
    good, bad, other = model.run([call(index=np.array([i])) for i in (3, 99, 7)])
    assert ([30.0], [70.0]) == (good["value"].tolist(), other["value"].tolist())  # type: ignore[index]
    assert isinstance(bad, BadRequest)
    assert "refuses this input" in str(bad)


def test_a_model_with_a_fixed_batch_of_one_runs_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And says so once, when it is loaded."""
    model = OnnxModel(models.mlp(tmp_path / "m.onnx", batch=1), 1)
    assert not model.shares_runs
    assert 1 == capsys.readouterr().err.count("requests run one by one")
    model.warm_up([1, 32])
    calls = [call(x=np.full((1, 4), n, np.float32)) for n in range(3)]
    assert [(1, 3)] * 3 == [y.shape for y in arrays(model.run(calls), "y")]
    assert "" == capsys.readouterr().err


@pytest.mark.parametrize(
    ("out", "said"),
    [(["batch"], ""), ([3], "the first dimension of the output 'sum' FP32 [3] is not free")],
)
def test_what_keeps_requests_apart_is_named(
    tmp_path: Path, out: models.Dims, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An output with a fixed batch is not blamed on the inputs."""
    OnnxModel(models.row_sum(tmp_path / "m.onnx", out=out), 1)
    told = capsys.readouterr().err
    assert said in told
    assert bool(said) == bool(told)
    assert "input" not in told


def test_a_model_whose_outputs_are_no_rows_runs_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found out at the first shared run: its answers are right all the same."""
    path = models.row_sum(tmp_path / "m.onnx", out=["width"], axis=0)
    model = OnnxModel(path, 1)
    assert model.shares_runs
    calls = [call(x=np.full((1, 3), n, np.float32)) for n in (1, 2)]
    assert [[1.0] * 3, [2.0] * 3] == [y.tolist() for y in arrays(model.run(calls), "sum")]
    assert not model.shares_runs
    assert "do not have one row" in capsys.readouterr().err


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    """Each keeps its name."""
    model = OnnxModel(models.adder(tmp_path / "m.onnx"), 1)
    one = np.ones((1, 2), np.float32)
    results = model.run([call(a=one * n, b=one) for n in (1, 2, 3)])
    assert [2.0, 3.0, 4.0] == [y[0, 0] for y in arrays(results, "sum")]
    assert [0.0, 1.0, 2.0] == [y[0, 0] for y in arrays(results, "difference")]


def test_text_goes_in_and_comes_out(tmp_path: Path) -> None:
    """As Python strings."""
    model = OnnxModel(models.texts(tmp_path / "m.onnx"), 1)
    model.warm_up([1, 4])
    results = model.run([call(text=np.array([text], object)) for text in ("a", "ü")])
    assert [["a"], ["ü"]] == [y.tolist() for y in arrays(results, "same")]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "no such file; put model.onnx there, or set model_path"),
        (b"", "(0 bytes): expected an ONNX model"),
        (b"not a model", "(11 bytes): expected an ONNX model"),
        (b"version https://git-lfs.github.com/spec/v1\n", "run git lfs pull"),
    ],
)
def test_a_file_that_is_no_model_is_told(tmp_path: Path, content: bytes | None, told: str) -> None:
    """With its path, what was expected and the fix."""
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LoadError) as raised:
        OnnxModel(path, 1)
    assert f"model '{path}'" in str(raised.value)
    assert told in str(raised.value)


def test_a_locale_that_is_not_installed_is_told(tmp_path: Path) -> None:
    """Models of text are often written for a locale that a small image does not have."""
    import onnx
    from onnx import TensorProto, helper

    lower = {"case_change_action": "LOWER", "locale": "xx_XX.UTF-8"}
    normalizer = helper.make_node("StringNormalizer", ["x"], ["y"], **lower)
    ends = [helper.make_tensor_value_info(name, TensorProto.STRING, ["n"]) for name in "xy"]
    model = helper.make_model(
        helper.make_graph([normalizer], "text", ends[:1], ends[1:]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(LoadError, match=r"install the locale that it names.*xx_XX"):
        OnnxModel(tmp_path / "model.onnx", 1)


def test_a_model_that_zeros_do_not_suit_is_not_warmed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Free dimensions cannot be guessed; that is no reason not to serve."""
    from onnx import TensorProto, helper

    node = helper.make_node("Slice", ["x", "from", "to", "axis"], ["s"])
    narrow = helper.make_node("Reshape", ["s", "shape"], ["y"])
    constants = {
        "from": np.array([0]),
        "to": np.array([2]),
        "axis": np.array([1]),
        "shape": np.array([-1, 2]),
    }
    inputs: dict[str, Any] = {"x": (TensorProto.FLOAT, ["batch", "width"])}
    outputs: dict[str, Any] = {"y": (TensorProto.FLOAT, ["batch", 2])}
    path = models.save(tmp_path / "m.onnx", [node, narrow], inputs, outputs, constants)
    OnnxModel(path, 1).warm_up([1])
    assert "an `example` in handler.py" in capsys.readouterr().err
