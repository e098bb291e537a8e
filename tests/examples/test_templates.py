"""The templates' skeletons, used as `faas-cli new` lays them out, without faas-cli."""

from __future__ import annotations

import filecmp
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.watchdog_plugin import models
from tests.watchdog_plugin.test_batch_first import AXES, recurrent

TEMPLATES = Path(__file__).parents[2] / "templates"


def skeleton_test(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the skeleton's own test in its folder."""
    command = [sys.executable, "-m", "unittest", "handler_test"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


LANGS = ["python3-batch", "python3-flask-batch", "python3-onnx-batch", "python3-onnx-batch-gpu"]


@pytest.mark.parametrize("lang", LANGS)
def test_skeleton_passes_its_own_test(lang: str, tmp_path: Path) -> None:
    """A new function passes its test, with the example model where it needs one."""
    folder = shutil.copytree(TEMPLATES / lang / "function", tmp_path / "fresh")
    if (folder / "example.onnx").exists():
        shutil.copy(folder / "example.onnx", folder / "model.onnx")
    result = skeleton_test(folder)
    assert 0 == result.returncode, result.stderr


def test_gpu_template_has_same_function_files_as_cpu_template() -> None:
    """An author's files are the same with and without a GPU."""
    plain, gpu = (TEMPLATES / name for name in ("python3-onnx-batch", "python3-onnx-batch-gpu"))
    names = [path.name for path in (plain / "function").iterdir() if path.is_file()]
    compared = filecmp.cmpfiles(plain / "function", gpu / "function", names, shallow=False)
    assert (sorted(names), [], []) == (sorted(compared[0]), *compared[1:])


def test_missing_model_is_reported(tmp_path: Path) -> None:
    """The template brings no model of its own that could be served by mistake."""
    folder = shutil.copytree(TEMPLATES / "python3-onnx-batch" / "function", tmp_path / "fresh")
    assert not (folder / "model.onnx").exists()
    result = skeleton_test(folder)
    assert 0 != result.returncode
    assert "put your model there" in result.stderr


@pytest.mark.parametrize("declared", ["batch_axis", "batch_axis: dict[str, int]"])
def test_declared_batch_axis_is_tested(tmp_path: Path, declared: str) -> None:
    """A model whose batch is not the first axis passes its test once handler.py declares it."""
    folder = shutil.copytree(TEMPLATES / "python3-onnx-batch" / "function", tmp_path / "fresh")
    recurrent(folder / "model.onnx")
    result = skeleton_test(folder)
    assert 0 != result.returncode
    assert "declare batch_axis in handler.py" in result.stderr
    code = f"import a_package_that_is_missing\n\n{declared} = {AXES}\n"
    (folder / "handler.py").write_text(code)
    result = skeleton_test(folder)
    assert 0 == result.returncode, result.stderr
    assert "skipped" not in result.stderr


def test_output_without_row_for_each_item_is_reported(tmp_path: Path) -> None:
    """The message names an output that does not have the batch as an axis."""
    folder = shutil.copytree(TEMPLATES / "python3-onnx-batch" / "function", tmp_path / "fresh")
    models.row_sum(folder / "model.onnx", axis=0)
    result = skeleton_test(folder)
    assert 0 != result.returncode
    assert "requests cannot be batched: sum has " in result.stderr


def test_output_that_is_no_tensor_is_left_out(tmp_path: Path) -> None:
    """A model with a sequence among its outputs passes, as its tensors can be served."""
    folder = shutil.copytree(TEMPLATES / "python3-onnx-batch" / "function", tmp_path / "fresh")
    models.split(folder / "model.onnx")
    result = skeleton_test(folder)
    assert 0 == result.returncode, result.stderr
