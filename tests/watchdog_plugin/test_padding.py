"""Variable lengths: same outputs as one by one, with limited and counted padding."""

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
    """Return a request with ``rows`` equal rows."""
    inputs: dict[str, np.ndarray[Any, Any]] = {
        "ids": np.array([ids] * rows, np.int64).reshape(rows, len(ids)),
        "mask": np.ones((rows, len(ids)), np.float32),
    }
    return Call(inputs, rows, [answers.json_answer])


@pytest.mark.parametrize("seed", range(6))
def test_batch_gives_same_outputs_as_single_requests(tmp_path: Path, seed: int) -> None:
    """Outputs are the same for any lengths and rows, and have the length of their request."""
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
    """Lengths 5 and 8 are padded to 8 and 9 runs alone; elements of both inputs count."""
    model = OnnxModel(models.tagger(tmp_path / "m.onnx"), 1, DECLARED)
    waste = PaddingWaste()
    model.run([call(range(size)) for size in (5, 8, 9)], waste)
    assert "6/44" == str(waste)


def runs(padding: Padding, sizes: Sequence[int]) -> list[list[int]]:
    """Return the lengths that share a run, for each run."""
    calls = [call(range(size)) for size in sizes]
    return [[sizes[index] for index in group] for group in padding.groups(calls)]


def pad(buckets: tuple[int, ...] = (), limit: float = 0.5) -> Padding:
    """Return a declaration for the tagger."""
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
def test_requests_of_one_bucket_share_run(
    padding: Padding, sizes: list[int], expected: list[list[int]]
) -> None:
    """Requests of one bucket share a run, longest first, as long as padding stays in its limit."""
    assert expected == runs(padding, sizes)


@pytest.mark.parametrize("limit", [0.0, 0.1, 0.3, 0.5])
def test_padding_stays_within_limit(limit: float) -> None:
    """No run of several requests exceeds the limit on padding, whatever the lengths."""
    sizes = np.random.default_rng(1).integers(1, 300, 200).tolist()
    found = runs(pad((1000,), limit), sizes)
    assert sorted(sizes) == sorted(size for run in found for size in run)
    for run in found:
        assert len(run) * max(run) * (1 - limit) <= sum(run) * (1 + 1e-9)


def test_requests_share_run_if_buckets_of_both_inputs_agree() -> None:
    """Dimensions other than the declared ones have to be equal."""
    padding = Padding({"a": 1, "b": 2}, {"a": 0, "b": 0}, {})
    shapes = [((1, 3), (1, 2, 9)), ((2, 5), (2, 2, 12)), ((1, 3), (1, 2, 8)), ((1, 3), (1, 3, 9))]
    calls = [
        Call({"a": np.ones(a), "b": np.ones(b)}, a[0], [answers.json_answer]) for a, b in shapes
    ]
    assert [[1, 0], [2], [3]] == padding.groups(calls)
    joined = padding.join("b", [calls[0].inputs["b"], calls[1].inputs["b"]])
    assert ((3, 2, 12), 18 + 48) == (joined.shape, joined.sum())


def test_text_is_padded_with_empty_text(tmp_path: Path) -> None:
    """Text is padded with empty text by default."""
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


def test_request_with_output_of_other_length_runs_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only padding is cut off an output."""
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
def test_mismatched_declaration_is_refused(
    tmp_path: Path, declared: dict[str, Any], told: str
) -> None:
    """A declaration that does not fit the model is refused at loading."""
    with pytest.raises(LoadError) as raised:
        OnnxModel(models.tagger(tmp_path / "m.onnx"), 1, declared)
    assert told in str(raised.value)


def test_all_faults_are_reported_together(tmp_path: Path) -> None:
    """One error lists all faults of the declaration."""
    declared = {"ragged": {"id": 1}, "ragged_buckets": 0, "ragged_waste": 7}
    with pytest.raises(LoadError) as raised:
        OnnxModel(models.tagger(tmp_path / "m.onnx"), 1, declared)
    assert all(name in str(raised.value) for name in ("'id'", "ragged_buckets", "ragged_waste"))


@pytest.mark.parametrize("where", ["handler.py", "environment"])
def test_a_process_pads_and_reports(tmp_path: Path, where: str) -> None:
    """Lengths are declared in code or environment; a response header has the padding share."""
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
