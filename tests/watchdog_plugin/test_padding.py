"""Variable lengths: the same answers as one by one, padding within its limit, and counted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.watchdog_plugin import models
from tests.watchdog_plugin.processes import start
from watchdog_plugin import answers, logs
from watchdog_plugin.function import LoadError
from watchdog_plugin.onnx.model import OnnxModel
from watchdog_plugin.onnx.padding import Padding, PaddingWaste
from watchdog_plugin.protocols.tensors import Call

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DECLARED: dict[str, Any] = {
    "ragged": {"ids": 1, "mask": 1},
    "ragged_outputs": {"tags": 1},
    "pad_value": {"ids": 99},
}


def call(ids: Sequence[int], rows: int = 1) -> Call:
    """A request of equal rows."""
    inputs: dict[str, np.ndarray[Any, Any]] = {
        "ids": np.array([ids] * rows, np.int64).reshape(rows, len(ids)),
        "mask": np.ones((rows, len(ids)), np.float32),
    }
    return Call(inputs, rows, [answers.json_answer])


@pytest.mark.parametrize("seed", range(6))
def test_a_batch_answers_as_its_requests_alone(tmp_path: Path, seed: int) -> None:
    """Whatever the lengths and rows, and at the length of each."""
    random = np.random.default_rng(seed)
    model = OnnxModel(models.tagger(tmp_path / "m.onnx"), 1, DECLARED)
    calls = [
        call(random.integers(1, 50, random.integers(0, 70)).tolist(), 1 + index % 3)
        for index in range(24)
    ]
    for one, together in zip(calls, model.run(calls), strict=True):
        (alone,) = model.run([one])
        assert isinstance(together, dict)
        assert isinstance(alone, dict)
        np.testing.assert_array_equal(together["tags"], alone["tags"])
        np.testing.assert_array_equal(together["sum"], alone["sum"])
        assert one.inputs["ids"].shape == together["tags"].shape


def test_padding_is_counted(tmp_path: Path) -> None:
    """Elements of both inputs: five and eight are padded to eight, nine rides alone."""
    model = OnnxModel(models.tagger(tmp_path / "m.onnx"), 1, DECLARED)
    waste = PaddingWaste()
    model.run([call(range(size)) for size in (5, 8, 9)], waste)
    assert "6/44" == str(waste)


def runs(padding: Padding, sizes: Sequence[int]) -> list[list[int]]:
    """The lengths that share a run."""
    calls = [call(range(size)) for size in sizes]
    return [[sizes[index] for index in group] for group in padding.groups(calls)]


def pad(buckets: tuple[int, ...] = (), limit: float = 0.5) -> Padding:
    """A declaration for the tagger."""
    return Padding({"ids": 1, "mask": 1}, {"ids": 0, "mask": 0}, {}, buckets, limit)


@pytest.mark.parametrize(
    ("padding", "sizes", "expected"),
    [
        (pad(), [8, 9, 7, 16, 17, 5], [[8, 7, 5], [16, 9], [17]]),
        (pad(), [0, 8], [[8, 0]]),
        (pad(), [1, 1, 8, 1, 1], [[8, 1], [1, 1, 1]]),
        (pad((100,)), [100, 1, 60, 2], [[100, 60, 2], [1]]),
        (pad((100,)), [100, 101, 200], [[100], [101], [200]]),
        (pad((10, 20)), [10, 11, 20, 9], [[10, 9], [20, 11]]),
        (pad(limit=0.0), [8, 7, 8, 7], [[8, 8], [7, 7]]),
        (pad((100,), limit=0.99), [100, 3, 50, 4], [[100, 50, 4, 3]]),
    ],
)
def test_who_shares_a_run(padding: Padding, sizes: list[int], expected: list[list[int]]) -> None:
    """One bucket, longest first, split where padding would exceed its share."""
    assert expected == runs(padding, sizes)


@pytest.mark.parametrize("limit", [0.0, 0.1, 0.3, 0.5])
def test_the_limit_holds(limit: float) -> None:
    """For any lengths, no run of several has a larger share of padding."""
    sizes = np.random.default_rng(1).integers(1, 300, 200).tolist()
    found = runs(pad((1000,), limit), sizes)
    assert sorted(sizes) == sorted(size for run in found for size in run)
    for run in found:
        assert len(run) * max(run) * (1 - limit) <= sum(run) * (1 + 1e-9)


def test_inputs_of_different_lengths_share_a_run_if_both_buckets_agree() -> None:
    """And other dimensions have to be equal, as before."""
    padding = Padding({"a": 1, "b": 2}, {"a": 0, "b": 0}, {})
    shapes = [((1, 3), (1, 2, 9)), ((2, 5), (2, 2, 12)), ((1, 3), (1, 2, 8)), ((1, 3), (1, 3, 9))]
    calls = [
        Call({"a": np.ones(a), "b": np.ones(b)}, a[0], [answers.json_answer]) for a, b in shapes
    ]
    assert [[1, 0], [2], [3]] == padding.groups(calls)
    joined = padding.join("b", [calls[0].inputs["b"], calls[1].inputs["b"]])
    assert ((3, 2, 12), 18 + 48) == (joined.shape, joined.sum())


def test_text_is_padded_with_text(tmp_path: Path) -> None:
    """By default with empty text."""
    from onnx import TensorProto, helper

    ragged: tuple[int, Any] = (TensorProto.STRING, ["batch", "words"])
    node = helper.make_node("Identity", ["x"], ["y"])
    path = models.save(tmp_path / "m.onnx", [node], {"x": ragged}, {"y": ragged})
    model = OnnxModel(path, 1, {"ragged": {"x": 1}})
    calls = [Call({"x": np.array([w], object)}, 1, [answers.json_answer]) for w in ("ab", ["c"])]
    calls[0] = Call({"x": np.array([["a", "b"]], object)}, 1, [answers.json_answer])
    first, second = model.run(calls)
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert ([["a", "b"]], [["c", ""]]) == (first["y"].tolist(), second["y"].tolist())


def test_an_output_that_is_not_as_long_is_told_and_answered_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is cut off that is no padding."""
    monkeypatch.setattr(logs, "_failures", logs._Budget(10))
    from onnx import TensorProto, helper

    ragged: tuple[int, Any] = (TensorProto.FLOAT, ["batch", "length"])
    twice: tuple[int, Any] = (TensorProto.FLOAT, ["batch", "other"])
    node = helper.make_node("Concat", ["x", "x"], ["y"], axis=1)
    path = models.save(tmp_path / "m.onnx", [node], {"x": ragged}, {"y": twice})
    model = OnnxModel(path, 1, {"ragged": {"x": 1}, "ragged_outputs": {"y": 1}})
    calls = [Call({"x": np.ones((1, n), np.float32)}, 1, [answers.json_answer]) for n in (2, 3)]
    first, second = model.run(calls)
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert ((1, 4), (1, 6)) == (first["y"].shape, second["y"].shape)
    assert "remove it from ragged_outputs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"pad_value": {"ids": 1}}, "ragged is missing"),
        ({"ragged": ["ids"]}, "ragged is ['ids'], expected a dict of axes by name"),
        ({"ragged": {"id": 1}}, "ragged names 'id', the model has ids, mask"),
        ({"ragged": {"ids": 0}}, "ragged['ids'] = 0: expected an axis from 1 to 1"),
        ({"ragged": {"ids": True}}, "ragged['ids'] = True: expected an axis"),
        ({"ragged": {"ids": 1}}, "leaves out 'mask', whose axis 1 is 'length' as well"),
        (DECLARED | {"ragged_outputs": {"sum": 1}}, "ragged_outputs['sum'] = 1: expected an axis"),
        (DECLARED | {"pad_value": {"tags": 1}}, "pad_value names 'tags', ragged does not"),
        (DECLARED | {"pad_value": {"ids": 1.5}}, "pad_value['ids'] = 1.5: expected INT64"),
        (DECLARED | {"pad_value": {"ids": "x"}}, "pad_value['ids'] = 'x': expected INT64"),
        (DECLARED | {"pad_value": {"ids": 2**70}}, "expected INT64"),
        (DECLARED | {"pad_value": 0}, "pad_value is 0, expected a dict"),
        (DECLARED | {"ragged_buckets": [8, 0]}, "ragged_buckets is [8, 0], expected a list"),
        (DECLARED | {"ragged_buckets": 8}, "ragged_buckets is 8, expected a list"),
        (DECLARED | {"ragged_waste": 1}, "ragged_waste is 1, expected a share"),
    ],
)
def test_a_declaration_that_does_not_fit_is_told(
    tmp_path: Path, declared: dict[str, Any], told: str
) -> None:
    """Before the first request."""
    with pytest.raises(LoadError) as raised:
        OnnxModel(models.tagger(tmp_path / "m.onnx"), 1, declared)
    assert told in str(raised.value)


def test_all_that_is_wrong_is_told_together(tmp_path: Path) -> None:
    """An author can fix it at once."""
    declared = {"ragged": {"id": 1}, "ragged_buckets": 0, "ragged_waste": 7}
    with pytest.raises(LoadError) as raised:
        OnnxModel(models.tagger(tmp_path / "m.onnx"), 1, declared)
    assert all(name in str(raised.value) for name in ("'id'", "ragged_buckets", "ragged_waste"))


@pytest.mark.parametrize("where", ["handler.py", "environment"])
def test_a_process_pads_and_reports(tmp_path: Path, where: str) -> None:
    """Declared in code or in the environment; the share travels in a header of the batch."""
    models.tagger(tmp_path / "function" / "model.onnx")
    environment = {}
    if where == "environment":
        environment["model_ragged"] = json.dumps(DECLARED)
    else:
        lines = [f"{name} = {value!r}\n" for name, value in DECLARED.items()]
        (tmp_path / "function" / "handler.py").write_text("".join(lines))
    bodies = [
        json.dumps({"instances": [{"ids": [1] * size, "mask": [1] * size}]}).encode()
        for size in (6, 8, 30)
    ]
    with start(tmp_path, **environment) as handler, handler.wait_ready().connect() as client:
        assert "4/88" == client.post_batch(bodies).headers["x-carpool-padding"]
        for size, answer in zip((6, 8, 30), client.batch(bodies), strict=True):
            (prediction,) = json.loads(answer.body)["predictions"]
            assert {"tags": [10.0] * size, "sum": 10.0 * size} == prediction
