"""The example models have a free batch size and usable outputs, and every build is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import pytest

from examples import models

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

STARTER = models.FOLDER.parent / "templates/python3-onnx-batch/function/example.onnx"


MODELS = [*(pytest.param(name, marks=pytest.mark.slow) for name in ("resnet50", "wide")), "tiny"]


def run(path: Path, batch: int) -> NDArray[np.float32]:
    """Return the model's first output for seeded noise."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    wanted = session.get_inputs()[0]
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((batch, *wanted.shape[1:]), np.float32)
    output: NDArray[np.float32] = session.run(None, {wanted.name: rows})[0]
    return output


@pytest.mark.parametrize("name", MODELS)
def test_model_is_valid_for_any_batch_size(
    name: str, example_folder: Callable[[str], Path]
) -> None:
    """Inputs and outputs begin with a symbolic batch, and batches of two sizes run."""
    path = example_folder(name) / "model.onnx"
    onnx.checker.check_model(str(path), full_check=True)
    graph = onnx.load(path, load_external_data=False).graph
    for value in (*graph.input, *graph.output):
        assert value.type.tensor_type.shape.dim[0].dim_param == "batch"
    assert [1, 3] == [len(run(path, batch)) for batch in (1, 3)]


@pytest.mark.parametrize("name", MODELS)
def test_outputs_differ_by_input_and_keep_their_scale(
    name: str, example_folder: Callable[[str], Path]
) -> None:
    """Outputs are neither constant nor very large, so comparing them is meaningful."""
    output = run(example_folder(name) / "model.onnx", 2)
    assert np.isfinite(output).all()
    assert np.abs(output).max() < 100
    assert output.std(axis=1).min() > 1e-3
    assert not np.allclose(output[0], output[1], rtol=1e-2)


@pytest.mark.slow
def test_resnet50_returns_probabilities(example_folder: Callable[[str], Path]) -> None:
    """The thousand classes sum to one."""
    output = run(example_folder("resnet50") / "model.onnx", 1)
    assert output.shape == (1, 1000)
    assert output.sum() == pytest.approx(1, abs=1e-4)


@pytest.mark.slow
def test_filetype_scores_are_batch_independent_and_equal_magika(
    example_folder: Callable[[str], Path],
) -> None:
    """Rows of little variance, where the model as shipped differs by 5e-4, agree to rounding."""
    ours = onnxruntime.InferenceSession(example_folder("filetype") / "model.onnx")
    theirs = onnxruntime.InferenceSession(models.magika_folder() / "model.onnx")
    rows = np.full((9, 2048), 256, np.int32)
    for i, row in enumerate(rows):
        row[:12] = row[-12:] = np.frombuffer(f"word {i:7}".encode(), np.uint8)
    alone = np.concatenate([ours.run(None, {"bytes": rows[i : i + 1]})[0] for i in range(9)])
    for i in range(9):
        shipped = theirs.run(["target_label"], {"bytes": rows[i : i + 1]})[0]
        np.testing.assert_array_equal(shipped[0], alone[i])
    for size in range(2, 10):
        (scores,) = ours.run(None, {"bytes": rows[:size]})
        np.testing.assert_allclose(scores, alone[:size], rtol=1e-5, atol=1e-8)


def test_builds_are_reproducible() -> None:
    """Weights are seeded, so that two machines serve the same model."""
    first, again = (models.mlp((8, 16, 4), seed=9).SerializeToString() for _ in range(2))
    assert first == again


def test_template_model_equals_built_starter_model() -> None:
    """`examples.models.starter` builds the only binary file of the templates."""
    assert models.starter().SerializeToString() == STARTER.read_bytes()
    assert len(STARTER.read_bytes()) < 1024


def test_unknown_example_error_lists_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The message for a misspelt name lists the known ones."""
    assert models.main(["wied"]) == 2
    assert "unknown example wied; known: filetype" in capsys.readouterr().err
