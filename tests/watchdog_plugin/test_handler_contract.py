"""Loading of handler.py: what is accepted, and the errors for everything else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from watchdog_plugin import handler_contract
from watchdog_plugin.function import LoadError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# Python 3.14 evaluates annotations only when it is asked to; earlier ones need this line for that.
LATER = "" if sys.version_info >= (3, 14) else "from __future__ import annotations\n"
TYPED = f"""{LATER}from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from numpy.typing import NDArray
"""


@pytest.fixture(autouse=True)
def _clean_imports() -> Iterator[None]:
    """Restore `sys.path` and `sys.modules`, as a real process loads only one function."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def read(folder: Path, text: str) -> handler_contract.HandlerModule:
    """Write ``text`` to a handler.py and return its definitions."""
    (folder / "handler.py").write_text(text)
    return handler_contract.read(folder)


def test_a_folder_without_a_handler_defines_nothing(tmp_path: Path) -> None:
    """A folder without code is accepted, as an ONNX model needs none."""
    found = handler_contract.read(tmp_path)
    assert (None, None, None, ()) == (
        found.handle_batch,
        found.preprocess,
        found.load,
        found.examples,
    )


def test_missing_folder_is_reported(tmp_path: Path) -> None:
    """The message names the setting."""
    with pytest.raises(LoadError, match=r"function_dir = '.*none': expected the folder"):
        handler_contract.read(tmp_path / "none")


@pytest.mark.parametrize("package", [True, False], ids=["with __init__", "without"])
@pytest.mark.parametrize(
    "imports", ["import beside", "from . import beside", "from function import beside"]
)
def test_modules_beside_the_handler_are_found(
    tmp_path: Path, imports: str, *, package: bool
) -> None:
    """Plain, relative and package imports all work."""
    if package:
        (tmp_path / "__init__.py").write_text("")
    (tmp_path / "beside.py").write_text("VALUE = 7")
    found = read(tmp_path, f"{imports}\ndef handle_batch(items): return [beside.VALUE]")
    assert found.handle_batch is not None
    assert [7] == found.handle_batch([])


def test_load_is_called_and_its_error_is_reported(tmp_path: Path) -> None:
    """The traceback has the author's frames and none of the runtime."""
    found = read(tmp_path, "def load():\n    raise KeyError('weights')\n")
    with pytest.raises(LoadError) as raised:
        handler_contract.call_load(found)
    text = str(raised.value)
    assert "handler.py: load() raised KeyError: 'weights'" in text
    assert "line 2, in load" in text
    assert "author.py" not in text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("raise ValueError('broken')", "importing it raised ValueError: broken"),
        (
            "import nothing_like_it",
            f"'nothing_like_it' with {sys.executable} -m pip install; for an image, add",
        ),
        ("def handle_batch(items)", "importing it raised SyntaxError"),
        ("import sys; sys.exit(0)", "importing it raised SystemExit: 0"),
        ("handle_batch = 5", "handle_batch is a int, expected a function handle_batch(items)"),
        ("def handle_batch(): ...", "handle_batch() cannot be called as handle_batch(items)"),
        ("def handle_batch(a, b): ...", "cannot be called as handle_batch(items)"),
        ("async def handle_batch(items): ...", "handle_batch is async, expected a plain function"),
        ("def load(path): ...", "load(path) cannot be called as load()"),
        ("def handle_batch(i): ...\ndef preprocess(i): ...", "preprocess is never called"),
        (
            "def handle_batch(i): ...\nragged = {'x': 1}",
            "ragged is never used if there is a handle_batch",
        ),
        ("example = 'text'", "example is str, expected bytes or a list of bytes"),
        ("example = []", "example is list, expected bytes or a list of bytes"),
    ],
)
def test_contract_violation_is_reported(tmp_path: Path, text: str, told: str) -> None:
    """The error at loading names the file and what was expected."""
    with pytest.raises(LoadError) as raised:
        read(tmp_path, text)
    assert str(tmp_path / "handler.py") in str(raised.value)
    assert told in str(raised.value)


def test_annotations_are_not_evaluated(tmp_path: Path) -> None:
    """Annotations are not evaluated, neither for the call nor for an error message."""
    found = read(tmp_path, TYPED + "def handle_batch(items: list[NDArray]): return [1]")
    assert found.handle_batch is not None
    with pytest.raises(LoadError, match=r"\(items: 'NDArray', more: 'NDArray'\) cannot be called"):
        read(tmp_path, TYPED + "def handle_batch(items: NDArray, more: NDArray): return [1]")


def test_all_contract_violations_are_reported_together(tmp_path: Path) -> None:
    """One error lists all faults of the handler."""
    with pytest.raises(LoadError) as raised:
        read(tmp_path, "def load(a): ...\ndef handle_batch(): ...\nexample = 1")
    assert all(word in str(raised.value) for word in ("load(a)", "handle_batch()", "example"))


def test_misspelt_hook_causes_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A function whose name resembles a hook's gets a warning, and other functions do not."""
    read(tmp_path, "def pre_process(item): ...\ndef _prepocess(item): ...\ndef tokens(x): ...")
    told = capsys.readouterr().err
    assert "pre_process is a function Carpool does not call; did you mean 'preprocess'?" in told
    assert 1 == told.count("does not call")
    read(tmp_path, "def preprocess(item): ...\ndef process(item): ...")
    assert "" == capsys.readouterr().err


def test_variable_lengths_are_returned_as_declared(tmp_path: Path) -> None:
    """Declared lengths are returned unchecked, and a pad value alone declares nothing."""
    declared = {"ragged": {"x": 1}, "pad_value": {"x": 7}, "ragged_waste": 0.2}
    text = "".join(f"{name} = {value!r}\n" for name, value in declared.items())
    assert declared == read(tmp_path, text).lengths
    assert {} == read(tmp_path, "pad_value = 3").lengths


def test_example_is_one_body_or_list(tmp_path: Path) -> None:
    """``example`` is one body or a list of bodies."""
    assert (b"a",) == read(tmp_path, "example = b'a'").examples
    assert (b"a", b"b") == read(tmp_path, "example = [b'a', b'b']").examples


def test_a_stream_and_its_paths_are_found(tmp_path: Path) -> None:
    """``stream_paths`` is one path or a list of paths."""
    text = "def stream(item):\n    yield item\nstream_paths = "
    assert {"/a"} == read(tmp_path, text + "'/a'").stream_paths
    assert {"/a", "/b/c"} == read(tmp_path, text + "['/a', '/b/c']").stream_paths
    assert set() == read(tmp_path, "def stream(item):\n    return iter(())").stream_paths


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("async def stream(item):\n    yield 1", "stream is async, expected a plain function"),
        ("def stream():\n    yield 1", r"stream\(\) cannot be called as stream\(one value\)"),
        ("def handle_batch(items): ...\nstream_paths = '/a'", "never used without stream"),
        (
            "def stream(item): ...\nstream_paths = ['a']",
            "expected a list of paths such as '/v1/chat'",
        ),
        ("def stream(item): ...\nstream_paths = ['/a b']", "expected a list of paths"),
        ("def stream(item): ...\nstream_paths = 3", "stream_paths is 3, expected a list of paths"),
    ],
)
def test_invalid_stream_is_reported(tmp_path: Path, text: str, told: str) -> None:
    """The error says what was expected."""
    with pytest.raises(LoadError, match=told):
        read(tmp_path, text)
