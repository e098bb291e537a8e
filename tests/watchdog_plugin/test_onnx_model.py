"""A model run on several requests: same outputs as one by one, and only invalid requests fail."""

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
    """Return a request with ``inputs``."""
    rows = len(next(iter(inputs.values())))
    return Call(inputs, rows, [answers.json_answer])


def arrays(results: list[Any], name: str) -> list[Any]:
    """Return the output ``name`` of each result."""
    return [result[name] for result in results]


@pytest.mark.parametrize("count", range(1, 9))
def test_batch_gives_same_outputs_as_single_requests(tmp_path: Path, count: int) -> None:
    """Floats agree within 1e-5 and integers exactly, for any batch size and number of rows."""
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


def test_requests_of_different_shapes_run_separately(tmp_path: Path) -> None:
    """Requests of different shapes run separately, and their results keep the order."""
    model = OnnxModel(models.row_sum(tmp_path / "m.onnx"), 1)
    widths = [2, 5, 2, 1, 5]
    results = model.run([call(x=np.ones((1, width), np.float32)) for width in widths])
    assert [[2.0], [5.0], [2.0], [1.0], [5.0]] == [y.tolist() for y in arrays(results, "sum")]


def test_only_invalid_request_fails(tmp_path: Path) -> None:
    """An index outside the table fails only its own request, as a bad one."""
    model = OnnxModel(models.lookup(tmp_path / "m.onnx"), 1)
    good, bad, other = model.run([call(index=np.array([i])) for i in (3, 99, 7)])
    assert ([30.0], [70.0]) == (good["value"].tolist(), other["value"].tolist())  # type: ignore[index]
    assert isinstance(bad, BadRequest)
    assert "refuses this input" in str(bad)


def test_a_model_with_a_fixed_batch_of_one_runs_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A message says so once, when the model is loaded."""
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
def test_message_names_reason_for_separate_runs(
    tmp_path: Path, out: models.Dims, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message about an output with a fixed batch does not mention inputs."""
    OnnxModel(models.row_sum(tmp_path / "m.onnx", out=out), 1)
    told = capsys.readouterr().err
    assert said in told
    assert bool(said) == bool(told)
    assert "input" not in told


def test_model_without_row_outputs_runs_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first shared run detects it, and its responses are correct."""
    path = models.row_sum(tmp_path / "m.onnx", out=["width"], axis=0)
    model = OnnxModel(path, 1)
    assert model.shares_runs
    calls = [call(x=np.full((1, 3), n, np.float32)) for n in (1, 2)]
    assert [[1.0] * 3, [2.0] * 3] == [y.tolist() for y in arrays(model.run(calls), "sum")]
    assert not model.shares_runs
    assert "do not have one row" in capsys.readouterr().err


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    """Each input and output keeps its name."""
    model = OnnxModel(models.adder(tmp_path / "m.onnx"), 1)
    one = np.ones((1, 2), np.float32)
    results = model.run([call(a=one * n, b=one) for n in (1, 2, 3)])
    assert [2.0, 3.0, 4.0] == [y[0, 0] for y in arrays(results, "sum")]
    assert [0.0, 1.0, 2.0] == [y[0, 0] for y in arrays(results, "difference")]


def test_text_goes_in_and_comes_out(tmp_path: Path) -> None:
    """Text inputs and outputs are Python strings."""
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
def test_invalid_model_file_is_reported(tmp_path: Path, content: bytes | None, told: str) -> None:
    """The error names the path, what was expected and the fix."""
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LoadError) as raised:
        OnnxModel(path, 1)
    assert f"model '{path}'" in str(raised.value)
    assert told in str(raised.value)


def test_missing_locale_is_reported(tmp_path: Path) -> None:
    """The error for a text model whose locale is missing says to install it."""
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


def test_model_with_failed_warm_up_is_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model whose warm-up fails is served, with a message that asks for an `example`."""
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
