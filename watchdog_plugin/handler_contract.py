"""Loads an author's ``handler.py`` and checks it before the first request.

Knows the names an author may define and their signatures, but neither models nor batches.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

from carpool.validation.problems import nearest
from watchdog_plugin import logs
from watchdog_plugin.function import LoadError

if sys.version_info >= (3, 14):
    import annotationlib

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

    from watchdog_plugin.item import Item

__all__ = ["RAGGED", "HandlerModule", "call_load", "read"]

_PACKAGE = "function"
RAGGED = ("ragged", "ragged_outputs", "ragged_buckets", "ragged_waste", "pad_value")
_ARGUMENTS = {
    "load": 0,
    "handle_batch": 1,
    "preprocess": 1,
    "postprocess": 1,
    "decode_step": 1,
    "stream": 1,
}


@dataclass(frozen=True, slots=True)
class HandlerModule:
    """The definitions found in ``handler.py``; None or empty where it has none."""

    source: Path
    load: Callable[[], object] | None = None
    handle_batch: Callable[[Sequence[Item]], object] | None = None
    preprocess: Callable[[Item], object] | None = None
    postprocess: Callable[[Mapping[str, Any]], object] | None = None
    decode_step: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    stream: Callable[[Item], object] | None = None
    stream_paths: frozenset[str] = frozenset()
    examples: tuple[bytes, ...] = ()
    lengths: Mapping[str, object] = field(default_factory=dict)
    batch_axis: object = None
    steps_max: int | None = None


def read(folder: Path, package: str = _PACKAGE) -> HandlerModule:
    """Import ``handler.py`` from ``folder``, if it exists, and check its definitions.

    It is imported as ``function.handler``, and the folder is added to the path, so that modules
    beside it can be imported by ``import beside`` and by ``from . import beside``.

    Args:
        folder: The function's folder.
        package: Name of the package to import it into; has to differ if there are several.

    Raises:
        LoadError: The folder does not exist, or the file raises or breaks the contract.
    """
    if not folder.is_dir():
        msg = (
            f"function_dir = {str(folder)!r}: expected the folder that holds handler.py or "
            "model.onnx; start in the folder above it, or set function_dir"
        )
        raise LoadError(msg)
    source = folder / "handler.py"
    if not source.is_file():
        return HandlerModule(source)
    try:
        module = _import(folder, source, package)
    except BaseException as error:
        raise _author_raised(source, "importing it", error) from error
    return _checked(source, module)


def call_load(author: HandlerModule) -> None:
    """Call the author's `load`, if defined.

    Raises:
        LoadError: It raised.
    """
    if author.load is None:
        return
    try:
        author.load()
    except BaseException as error:
        raise _author_raised(author.source, "load()", error) from error


def _import(folder: Path, source: Path, package: str) -> ModuleType:
    location = str(folder.resolve())
    sys.path.insert(0, location)
    init = folder / "__init__.py"
    spec = ModuleSpec(package, None, is_package=True)
    spec.submodule_search_locations = [location]
    sys.modules[package] = importlib.util.module_from_spec(spec)
    if init.is_file():
        _execute(package, init, [location])
    return _execute(f"{package}.handler", source)


def _execute(name: str, file: Path, locations: list[str] | None = None) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        name, file.resolve(), submodule_search_locations=locations
    )
    if spec is None or spec.loader is None:
        msg = f"{file} is not a Python file"
        raise ImportError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _author_raised(source: Path, doing: str, error: BaseException) -> LoadError:
    """Return an error with the author's own traceback, without the runtime's frames above it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != str(source.resolve()):
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace)).rstrip()
    hint = ""
    if isinstance(error, ModuleNotFoundError):
        hint = (
            f"; under carpool up, install the package of {error.name!r} with"
            f" {sys.executable} -m pip install; for an image, add it to requirements.txt beside it"
        )
    return LoadError(f"{source}: {doing} raised {logs.describe(error)}{hint}\n{text}")


def _checked(source: Path, module: ModuleType) -> HandlerModule:
    defined = {name: value for name in _ARGUMENTS if (value := getattr(module, name, None))}
    problems = [_signature_problem(name, value) for name, value in defined.items()]
    if "handle_batch" in defined:
        unused = [n for n in ("preprocess", "postprocess", "decode_step") if n in defined]
        problems += [
            f"{name} is never called if there is a handle_batch: keep one of them"
            for name in unused
        ]
    lengths = {name: value for name in RAGGED if (value := getattr(module, name, None)) is not None}
    if lengths.keys() == {"pad_value"}:  # by itself it is a constant of the author's own
        lengths = {}
    if "handle_batch" in defined and "ragged" in lengths:
        problems.append("ragged is never used if there is a handle_batch: keep one of them")
    examples, problem = _examples(getattr(module, "example", None))
    steps_max = getattr(module, "steps_max", None)
    if steps_max is not None and not (type(steps_max) is int and steps_max > 0):
        problems.append(f"steps_max is {steps_max!r}, expected a whole number of at least 1")
    stream_paths, misplaced = _stream_paths(module, streams="stream" in defined)
    problems = [text for text in (*problems, problem, misplaced) if text]
    if problems:
        raise LoadError(f"{source}: " + "; ".join(problems))
    _warn_of_misspelt(source, module, defined)
    batch_axis = None if "handle_batch" in defined else getattr(module, "batch_axis", None)
    return HandlerModule(
        source,
        examples=examples,
        lengths=lengths,
        batch_axis=batch_axis,
        steps_max=steps_max,
        stream_paths=stream_paths,
        **defined,
    )


def _stream_paths(module: ModuleType, *, streams: bool) -> tuple[frozenset[str], str]:
    """Return the paths whose requests are streamed, and the problem with them; empty if none."""
    value = getattr(module, "stream_paths", None)
    if value is None:
        return frozenset(), ""
    if not streams:
        return frozenset(), "stream_paths is never used without stream(item): define it"
    paths = [value] if isinstance(value, str) else value
    if isinstance(paths, list | tuple | set | frozenset) and all(
        isinstance(path, str) and path.startswith("/") and path == "".join(path.split())
        for path in paths
    ):
        return frozenset(paths), ""
    return frozenset(), f"stream_paths is {value!r}, expected a list of paths such as '/v1/chat'"


def _signature_problem(name: str, value: object) -> str:
    count = _ARGUMENTS[name]
    wanted = f"{name}({'' if not count else 'items' if name == 'handle_batch' else 'one value'})"
    if not callable(value):
        return f"{name} is a {type(value).__name__}, expected a function {wanted}"
    if inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value):
        return f"{name} is async, expected a plain function: it is called from a thread"
    try:
        signature = _signature(value)
    except ValueError:
        return ""  # a builtin without a signature
    try:
        signature.bind(*range(count))
    except TypeError as error:
        return f"{name}{signature} cannot be called as {wanted}: {error}"
    return ""


def _signature(function: Callable[..., object]) -> inspect.Signature:
    """Return a signature; do not evaluate annotations, which may name what is not imported.

    Python 3.14 evaluates them only if a program asks for their values.
    """
    if sys.version_info >= (3, 14):
        return inspect.signature(function, annotation_format=annotationlib.Format.STRING)
    return inspect.signature(function)


def _examples(value: object) -> tuple[tuple[bytes, ...], str]:
    if value is None:
        return (), ""
    entries = [value] if isinstance(value, bytes) else value
    if isinstance(entries, list | tuple) and entries:
        bodies = tuple(entry for entry in entries if isinstance(entry, bytes))
        if len(bodies) == len(entries):
            return bodies, ""
    return (), f"example is {type(value).__name__}, expected bytes or a list of bytes: whole bodies"


def _warn_of_misspelt(source: Path, module: ModuleType, defined: Mapping[str, object]) -> None:
    """Warn of functions that may be misspelt hooks, which would be skipped silently.

    It is only a warning, as a function with a similar name is not an error.
    """
    for name, value in vars(module).items():
        own = inspect.isfunction(value) and value.__module__ == module.__name__
        if own and not name.startswith("_") and name not in defined:
            hint = nearest(name, _ARGUMENTS)
            if hint and not any(repr(known) in hint for known in defined):
                logs.say(f"{source}: {name} is a function Carpool does not call; {hint}")
