"""Tests that `carpool new` makes functions with a readable stack file and overwrites nothing."""

from __future__ import annotations

import resource
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from carpool.errors import ConfigError
from faas_stack.stack import new, stack_file
from tests.watchdog_plugin import models

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which each test runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _names() -> list[str]:
    return [function.name for function in stack_file.load(Path("stack.yaml")).functions]


def test_a_first_function_has_a_stack_file_and_a_model(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A first function can be started as it is, with the template's example as its model."""
    assert 0 == new.main(["classify", "--slo", "50ms"])
    (function,) = stack_file.load(Path("stack.yaml")).functions
    assert ("classify", "50ms") == (function.name, function.labels["com.carpool.slo"])
    example = ROOT / "templates" / "python3-onnx-batch" / "function" / "example.onnx"
    assert example.read_bytes() == (folder / "classify" / "model.onnx").read_bytes()
    assert "Start it: carpool up\n" in capsys.readouterr().out


@pytest.mark.parametrize("lang", [path.name for path in sorted((ROOT / "templates").iterdir())])
def test_every_template_makes_a_function(lang: str) -> None:
    """A function can be made from each of Carpool's templates."""
    new.main(["mine", "--lang", lang])
    (function,) = stack_file.load(Path("stack.yaml")).functions
    assert function.template
    assert lang == function.template.name


def test_given_model_is_copied(folder: Path) -> None:
    """The given model file is copied into the function."""
    model = _with_weights(folder, "weights.bin").read_bytes()
    (folder / "weights.bin").write_bytes(b"weights")
    new.main(["classify", "--model", "mine.onnx"])
    assert model == (folder / "classify" / "model.onnx").read_bytes()


@pytest.mark.parametrize(("first", "warned"), [(1, True), ("batch", False), (None, False)])
def test_fixed_first_axis_is_warned_of(
    folder: Path, capsys: pytest.CaptureFixture[str], first: int | str | None, *, warned: bool
) -> None:
    """The warning names the input, its shape and what to do; the function is created anyway."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [first, None]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph), folder / "mine.onnx")
    assert 0 == new.main(["classify", "--model", "mine.onnx"])
    expected = "warning: the input x of mine.onnx has the shape [1, ?], whose first axis is fixed"
    assert warned == (expected in capsys.readouterr().out)


def test_scalar_input_and_fixed_output_are_warned_of(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A scalar input and an output with a fixed or no first axis keep requests from batches."""
    rows: models.Dims = ["n", 2]
    nodes = [
        helper.make_node("Mul", ["x", "rate"], ["y"]),
        helper.make_node("ReduceMean", ["y"], ["mean"], axes=[0]),
        helper.make_node("ReduceMax", ["y"], ["top"], keepdims=0),
    ]
    real = TensorProto.FLOAT
    outputs: dict[str, tuple[int, models.Dims]]
    outputs = {"y": (real, rows), "mean": (real, [1, 2]), "top": (real, [])}
    models.save(folder / "mine.onnx", nodes, {"x": (real, rows), "rate": (real, [])}, outputs)
    assert 0 == new.main(["classify", "--model", "mine.onnx"])
    lines = capsys.readouterr().out.splitlines()
    warned = [line.partition(", ")[0] for line in lines if line.startswith("warning: ")]
    assert [
        "warning: the input rate of mine.onnx is a scalar",
        "warning: the output mean of mine.onnx has the shape [1",
        "warning: the output top of mine.onnx is a scalar",
    ] == warned


def test_output_that_is_no_tensor_is_warned_of(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sequence or map, such as scikit-learn's probabilities by class, is not in responses."""
    models.split(folder / "mine.onnx")
    assert 0 == new.main(["classify", "--model", "mine.onnx"])
    (warned,) = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert "the output rows of mine.onnx is not a tensor, so responses leave it out" in warned


@pytest.mark.parametrize("text", [b"import onnx\n", b"", b"version https://git-lfs.github.com/"])
def test_file_that_is_not_a_model_is_refused(folder: Path, text: bytes) -> None:
    """A file that is not a model is refused before anything is written."""
    (folder / "two.py").write_bytes(text)
    with pytest.raises(ConfigError, match=r"--model = 'two\.py': expected an ONNX model"):
        new.main(["classify", "--model", "two.py"])
    assert ["two.py"] == [path.name for path in folder.iterdir()]


def test_further_function_keeps_comments_and_order_of_file(folder: Path) -> None:
    """A further function keeps the comments and order of the stack file."""
    new.main(["first"])
    path = folder / "stack.yaml"
    path.write_text(path.read_text().replace("labels:", "labels: # mine"))
    new.main(["second", "--lang", "python3-batch"])
    assert ["first", "second"] == _names()
    assert "labels: # mine" in path.read_text()
    assert not (folder / "second" / "model.onnx").exists()


def test_nothing_is_overwritten(folder: Path) -> None:
    """If the folder exists, it and the stack file are kept."""
    new.main(["classify"])
    before = (folder / "stack.yaml").read_text()
    with pytest.raises(ConfigError, match="a folder that does not exist yet"):
        new.main(["classify"])
    assert before == (folder / "stack.yaml").read_text()


@pytest.mark.parametrize("free", [1_000, 50_000])
def test_full_disk_changes_nothing(folder: Path, free: int) -> None:
    """If files cannot be written, the stack file is kept and no part of the function is left."""
    new.main(["classify"])
    stack = folder / "stack.yaml"
    stack.write_text(f"# {'x' * 100_000}\n{stack.read_text()}")
    before = stack.read_text()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, limits[1]))  # of a file, as a full disk
    try:
        with pytest.raises(ConfigError, match=r"other = .*File too large"):
            new.main(["other"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert before == stack.read_text()
    assert ["classify", "stack.yaml"] == sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["Not_a_name"], "lower-case letters, digits and inner dashes"),
        (["a", "--model", "gone.onnx"], "an ONNX file; there is no such file"),
        (["a", "--lang", "python3-onnx"], "a template"),
        (["a", "--lang", "python3-batch", "--model", "m.onnx"], "a template that serves ONNX"),
    ],
)
def test_invalid_arguments_are_refused_before_writing(
    folder: Path, argv: list[str], said: str
) -> None:
    """Invalid arguments are refused before the first file is written."""
    with pytest.raises(ConfigError, match=said):
        new.main(argv)
    assert [] == list(folder.iterdir())


@pytest.mark.parametrize("text", ["functions: {}\nconfiguration: {}\n", "functions: {a: {}}\n"])
def test_stack_file_that_cannot_be_extended_is_kept(folder: Path, text: str) -> None:
    """If the stack file cannot be extended, the error shows the entry to add by hand."""
    (folder / "stack.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"add by hand:\n  b:"):
        new.main(["b"])
    assert text == (folder / "stack.yaml").read_text()
    assert not (folder / "b").exists()


@pytest.mark.parametrize("name", ["123", "on", "off", "yes", "null", "2024-01-02", "2024-13-99"])
def test_name_that_yaml_reads_as_another_type_stays_a_name(name: str) -> None:
    """A name that YAML would read as another type stays a name."""
    new.main([name])
    new.main(["next"])
    assert [name, "next"] == _names()


@pytest.mark.parametrize("slo", ["soon", "a: b", "-1s", "0", "[", ""])
def test_invalid_objective_is_refused(folder: Path, slo: str) -> None:
    """An objective that `carpool up` would refuse is refused at once."""
    with pytest.raises(ConfigError, match="--slo"):
        new.main(["a", f"--slo={slo}"])
    assert [] == list(folder.iterdir())


def test_unreadable_stack_file_is_refused_and_kept(folder: Path) -> None:
    """A stack file that is not text, or is a folder, is refused and kept."""
    (folder / "stack.yaml").write_bytes(b"\xff")
    (folder / "other.yaml").mkdir()
    for path, said in (("stack.yaml", "UTF-8"), ("other.yaml", "a readable file")):
        with pytest.raises(ConfigError, match=said):
            new.main(["a", "-f", path])
    assert not (folder / "a").exists()


def test_weights_beside_a_model_are_copied(folder: Path) -> None:
    """Weights beside a model are copied under their own name, which the model refers to."""
    _with_weights(folder, "mine.onnx.data")
    (folder / "mine.onnx.data").write_bytes(b"weights")
    new.main(["classify", "--model", "mine.onnx"])
    assert b"weights" == (folder / "classify" / "mine.onnx.data").read_bytes()


def _with_weights(folder: Path, place: str) -> Path:
    """Write a model with its weights at ``place``, which need not exist, and return its path."""
    weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[2])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=place)
    ends = [onnx.helper.make_tensor_value_info(n, 1, ["batch", 2]) for n in "xy"]
    node = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    graph = onnx.helper.make_graph([node], "g", ends[:1], ends[1:], [weight])
    path = folder / "mine.onnx"
    path.write_bytes(onnx.helper.make_model(graph).SerializeToString())
    return path


@pytest.mark.parametrize("place", ["all_weights.bin", "parts/0001"])
def test_weights_are_copied_to_path_in_model(folder: Path, place: str) -> None:
    """Weights are copied to the path that the model refers to, without other models' files."""
    _with_weights(folder, place)
    (folder / place).parent.mkdir(exist_ok=True)
    (folder / place).write_bytes(b"weights")
    (folder / "mine.onnx.data").write_bytes(b"of another model")
    new.main(["classify", "--model", "mine.onnx"])
    assert b"weights" == (folder / "classify" / place).read_bytes()
    assert not (folder / "classify" / "mine.onnx.data").exists()


@pytest.mark.parametrize("place", ["missing.bin", "../outside.bin"])
def test_missing_or_outside_weights_are_refused(folder: Path, place: str) -> None:
    """Weights that are missing or outside the model's folder are refused."""
    (folder.parent / "outside.bin").write_bytes(b"weights")
    _with_weights(folder, place)
    with pytest.raises(ConfigError, match=rf"--model.*{place}.*beside the model"):
        new.main(["classify", "--model", "mine.onnx"])
    assert not (folder / "classify").exists()
