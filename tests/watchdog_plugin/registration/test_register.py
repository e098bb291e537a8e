"""``carpool register`` registers only variants that it has measured."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from carpool.errors import CarpoolError, ConfigError, Conflict, FunctionFault
from carpool.variants.variant_file import read_variants
from tests.faas_stack.test_up import descendants
from tests.waiting import wait_until
from tests.watchdog_plugin.registration.models import CLASSES, INPUTS, classifier, validation
from watchdog_plugin.registration.command import main


@pytest.fixture
def model(tmp_path: Path) -> Any:
    """Write a classifier and a validation set on which its accuracy is 0.9."""
    answer = classifier(tmp_path / "small.onnx")
    validation(tmp_path / "validation.npz", answer)
    return answer


def register(folder: Path, *flags: str, name: str = "small") -> int:
    """Register variants with one thread for an application."""
    required = ["--app", "demo", "--validation", str(folder / "validation.npz")]
    sizes = ["--threads", "1", "--batch", "1,4", "--registry", str(folder / "registry")]
    return main([str(folder / f"{name}.onnx"), *required, *sizes, *flags])


def files(folder: Path) -> list[str]:
    """Return the names of the files in the registry, without the lock."""
    return sorted(
        path.name
        for path in (folder / "registry").rglob("*")
        if path.is_file() and path.name != ".lock"
    )


@pytest.mark.slow
@pytest.mark.usefixtures("model")
def test_every_recipe_becomes_a_measured_variant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each variant has accuracy, latencies, loading time and memory, and progress is shown."""
    assert 0 == register(tmp_path)
    variants = {v.name: v for v in read_variants(tmp_path / "registry/demo/variants.json")}
    recipes = ["plain", "folded", "fused", "int8", "fp16", "single"]
    assert [f"small-{recipe}-t1" for recipe in recipes] == list(variants)
    assert 0.9 == variants["small-plain-t1"].accuracy
    assert 0.8 <= variants["small-int8-t1"].accuracy <= 0.95
    assert 0.85 <= variants["small-fp16-t1"].accuracy <= 0.95
    assert {1, 4} == variants["small-plain-t1"].latencies_s.keys()
    assert {1} == variants["small-single-t1"].latencies_s.keys()
    assert all(v.load_s > 0 and v.memory_mb > 1 for v in variants.values())
    assert "[6/6] small-single-t1: accuracy 0.9000" in capsys.readouterr().out


@pytest.mark.usefixtures("model")
def test_registered_variants_are_not_measured_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second call continues after the first one and deletes the files that it left over."""
    register(tmp_path, "--recipes", "plain")
    before = (tmp_path / "registry/demo/variants.json").read_text(encoding="utf-8")
    (tmp_path / "registry/demo/small-fused-0123456789ab.onnx").write_bytes(b"half a file")
    register(tmp_path, "--recipes", "plain,folded")
    lines = capsys.readouterr().out.splitlines()
    assert "[1/2] small-plain-t1: is registered" in lines
    after = (tmp_path / "registry/demo/variants.json").read_text(encoding="utf-8")
    assert before.splitlines()[1] in after
    assert 3 == len(files(tmp_path))


@pytest.mark.slow
def test_several_architectures_share_an_application(tmp_path: Path, model: Any) -> None:
    """A second architecture is registered beside the first."""
    register(tmp_path, "--recipes", "plain")
    register(tmp_path, "--recipes", "plain", "--architecture", "Large_Net")
    names = [v.name for v in read_variants(tmp_path / "registry/demo/variants.json")]
    assert ["small-plain-t1", "large-net-plain-t1"] == names
    assert model is not None


@pytest.mark.usefixtures("model")
def test_invalid_model_file_is_refused(tmp_path: Path) -> None:
    """The error names the file, and nothing is registered."""
    (tmp_path / "small.onnx").write_bytes(b"no model")
    with pytest.raises(CarpoolError, match="expected an ONNX model"):
        register(tmp_path)
    assert [] == files(tmp_path)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        pytest.param({"x": (0, INPUTS), "labels": []}, "the validation set is empty", id="empty"),
        pytest.param({"x": (3, INPUTS), "labels": [0, 1]}, "2, one for each label", id="fewer"),
        pytest.param({"x": (1, INPUTS)}, "is missing", id="no labels"),
        pytest.param({"labels": [0]}, "an array for this input", id="no input"),
        pytest.param({"X": (1, INPUTS), "labels": [0]}, "did you mean 'x'|expected", id="misspelt"),
        pytest.param({"x": (1, INPUTS + 1), "labels": [0]}, "as the model expects", id="wider"),
        pytest.param({"x": (INPUTS,), "labels": [0] * INPUTS}, "as the model", id="flat"),
        pytest.param({"x": ["q"], "labels": [0]}, "convert it", id="texts"),
        pytest.param({"x": (1, INPUTS), "labels": [0.5]}, "whole numbers", id="no labels at all"),
        pytest.param(
            {"x": (1, INPUTS), "labels": [CLASSES]}, "has 5 classes", id="of another model"
        ),
    ],
)
@pytest.mark.usefixtures("model")
def test_unsuitable_validation_data_is_refused(
    tmp_path: Path, arrays: dict[str, Any], said: str
) -> None:
    """The error names the fault in the data, and nothing is registered."""
    made: dict[str, Any] = {
        name: np.zeros(value, np.float32) if isinstance(value, tuple) else np.array(value)
        for name, value in arrays.items()
    }
    if not made.get("labels", np.zeros(1)).size:
        made["labels"] = np.zeros(0, np.int64)
    np.savez(tmp_path / "validation.npz", **made)
    with pytest.raises(CarpoolError, match=said):
        register(tmp_path)
    assert [] == files(tmp_path)


@pytest.mark.parametrize(
    "contents", [b"", b"no arrays", b"PK\x03\x04" + b"\0" * 60], ids=["empty", "junk", "damaged"]
)
@pytest.mark.usefixtures("model")
def test_invalid_validation_files_are_refused(tmp_path: Path, contents: bytes) -> None:
    """The error says how to make a validation set."""
    (tmp_path / "validation.npz").write_bytes(contents)
    with pytest.raises(ConfigError, match=r"numpy\.savez"):
        register(tmp_path)


@pytest.mark.usefixtures("model")
def test_validation_file_with_single_array_is_refused(tmp_path: Path) -> None:
    """A file of `numpy.save` is refused, as it holds a single array."""
    with (tmp_path / "validation.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ConfigError, match=r"numpy\.savez"):
        register(tmp_path)


@pytest.mark.usefixtures("model")
def test_unwritable_registry_is_reported(tmp_path: Path) -> None:
    """A file in place of the registry's folder is an error that names ``--registry``."""
    (tmp_path / "registry").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match="--registry"):
        register(tmp_path)


def test_a_variant_that_crashes_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other variants are registered."""
    answer = classifier(tmp_path / "small.onnx", reshaped=True)
    validation(tmp_path / "validation.npz", answer)
    assert 0 == register(tmp_path, "--recipes", "plain,single")
    names = [v.name for v in read_variants(tmp_path / "registry/demo/variants.json")]
    assert ["small-single-t1"] == names
    assert "small-plain-t1: left out: it fails" in capsys.readouterr().out
    assert 2 == len(files(tmp_path))


def test_nothing_is_registered_if_all_variants_crash(tmp_path: Path) -> None:
    """No list is written without a variant in it."""
    answer = classifier(tmp_path / "small.onnx", reshaped=True)
    validation(tmp_path / "validation.npz", answer)
    with pytest.raises(FunctionFault, match="none is registered"):
        register(tmp_path, "--recipes", "plain")
    assert [] == files(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("model")
def test_call_fails_although_another_model_is_registered(tmp_path: Path) -> None:
    """The call fails although a variant of another model is registered, and that variant stays."""
    register(tmp_path, "--recipes", "plain")
    answer = classifier(tmp_path / "broken.onnx", reshaped=True)
    validation(tmp_path / "validation.npz", answer)
    with pytest.raises(FunctionFault, match="none is registered"):
        register(tmp_path, "--recipes", "plain", name="broken")
    assert 2 == len(files(tmp_path))


def test_user_models_in_registry_are_kept(tmp_path: Path, model: Any) -> None:
    """Only files written by a registration are removed."""
    folder = tmp_path / "registry" / "demo"
    folder.mkdir(parents=True)
    kept = ["mine.onnx", "old.new", "resnet-50.onnx"]
    for name in kept:
        (folder / name).write_bytes((tmp_path / "small.onnx").read_bytes())
    register(tmp_path, "--recipes", "plain")
    assert {*kept, "variants.json"} < set(files(tmp_path))
    assert model is not None


@pytest.mark.slow
@pytest.mark.usefixtures("model")
def test_variants_are_measured_again_if_validation_set_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Variants are measured again after labels or batch sizes have changed."""
    register(tmp_path, "--recipes", "plain")
    data = dict(np.load(tmp_path / "validation.npz"))
    data["labels"][:20] = (data["labels"][:20] + 2) % CLASSES
    np.savez(tmp_path / "validation.npz", **data)
    register(tmp_path, "--recipes", "plain")
    listing = tmp_path / "registry/demo/variants.json"
    assert [0.8] == [v.accuracy for v in read_variants(listing)]
    register(tmp_path, "--recipes", "plain", "--batch", "2")
    assert [{2}] == [set(v.latencies_s) for v in read_variants(listing)]
    assert "is registered" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("model")
def test_variant_with_missing_model_file_is_registered_again(tmp_path: Path) -> None:
    """A variant that is listed but has no model file is registered again."""
    register(tmp_path, "--recipes", "plain")
    (made,) = (tmp_path / "registry/demo").glob("*.onnx")
    made.unlink()
    register(tmp_path, "--recipes", "plain")
    assert made.is_file()


def test_measuring_process_ends_with_killed_registration(tmp_path: Path) -> None:
    """The measuring process ends with the registering process."""
    answer = classifier(tmp_path / "small.onnx")
    validation(tmp_path / "validation.npz", answer)
    wanted = ["--app", "demo", "--validation", "validation.npz", "--recipes", "plain"]
    command = [sys.executable, "-m", "carpool", "register", "small.onnx", *wanted]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as registering:
        wait_until(lambda: len(descendants(registering.pid)) == 1, what="it measures")
        (measuring,) = descendants(registering.pid)
        command_line = Path(f"/proc/{measuring}/cmdline")
        wait_until(lambda: b"registration.measuring_process" in command_line.read_bytes())
        registering.kill()  # before it has as much as imported anything
    wait_until(lambda: not Path(f"/proc/{measuring}").exists(), what="it has gone")


@pytest.mark.usefixtures("model")
def test_file_above_disk_limit_is_removed(tmp_path: Path) -> None:
    """The file that exceeds the limit is removed, and what is registered stays."""
    size = (tmp_path / "small.onnx").stat().st_size
    with pytest.raises(ConfigError, match="raise --disk"):
        register(tmp_path, "--recipes", "plain,folded", "--disk", f"{1.5 * size / 1000:.3f}k")
    names = [v.name for v in read_variants(tmp_path / "registry/demo/variants.json")]
    assert ["small-plain-t1"] == names
    assert 2 == len(files(tmp_path))


@pytest.mark.usefixtures("model")
def test_concurrent_registration_is_refused(tmp_path: Path) -> None:
    """A second registration of the same application is refused."""
    (tmp_path / "registry/demo").mkdir(parents=True)
    with (tmp_path / "registry/demo/.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Conflict, match="another process is registering"):
            register(tmp_path)


@pytest.mark.usefixtures("model")
def test_flags_are_read_strictly(tmp_path: Path) -> None:
    """All faults in the flags are reported together."""
    with pytest.raises(ConfigError) as raised:
        register(tmp_path, "--recipes", "plain,int9", "--batch", "0", "--disk", "much")
    assert ["--recipes", "--disk", "--batch"] == [p.name for p in raised.value.problems]
    with pytest.raises(ConfigError, match="the cores of this machine"):
        register(tmp_path, "--threads", "4096")
