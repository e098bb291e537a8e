"""``carpool new``: a function's folder, made from a template, and its entry in the stack file."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from carpool import function_name
from carpool.errors import ConfigError, Problem
from carpool.files import reason, replace_file
from carpool.setting_spec import read_value
from carpool.settings import rows
from carpool.validation.problems import Problems
from carpool.validation.text_file import read_text
from faas_stack.stack import stack_file, templates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faas_stack.stack.templates import Template

__all__ = ["main"]

_LANG = "python3-onnx-batch"
_WEIGHTS = (".data", "_data")  # suffixes that exporters add to the model's name for weights
_MODE = 0o644  # of a new stack file
_HEAD = """\
version: 1.0
provider:
  name: openfaas
  gateway: http://127.0.0.1:8080

functions:
"""
_ENTRY = """\
  {key}:
    lang: {lang}
    handler: ./{name}
    image: {name}:latest
    labels:
      com.carpool.slo: {slo}
      com.carpool.batch.max: "32"
"""


def main(argv: list[str]) -> int:
    """Create a function without overwriting anything.

    Raises:
        ConfigError: A name, template, model or stack file cannot be used.
    """
    args = _parser().parse_args(argv)
    path = args.yaml or stack_file.default_path()
    template = templates.find(args.lang, path.resolve().parent)
    folder = path.parent / args.name
    _check(args, folder)
    text = _with_entry(path, args.name, _entry(args))
    try:
        _copy(template, folder, args.model)
        mode = path.stat().st_mode if path.exists() else _MODE
        replace_file(path.resolve(), text.encode(), mode)
    except FileExistsError as error:  # another process has just created it: its files stay
        raise ConfigError([Problem("NAME", str(folder), "a folder that does not exist")]) from error
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        expected = "files that can be written"
        raise ConfigError([Problem(str(folder), reason(error), expected)]) from error
    sys.stdout.write(_summary(path, folder, args))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="carpool new",
        description="Create a function from a template, and add it to the stack file.",
    )
    add = parser.add_argument
    add("name", help="name of the function: lower-case letters, digits and inner dashes")
    add("--lang", default=_LANG, metavar="TEMPLATE", help="template (default: %(default)s)")
    model = "model to serve (default: the template's example)"
    add("--model", type=Path, metavar="MODEL.onnx", help=model)
    add("--slo", default="100ms", metavar="TIME", help="latency objective (default: %(default)s)")
    add("-f", "--yaml", type=Path, metavar="FILE", help="stack file (default: ./stack.yaml)")
    return parser


def _check(args: argparse.Namespace, folder: Path) -> None:
    """Check all arguments before anything is written."""
    problems = Problems()
    (slo,) = [row for row in rows() if row.key == "slo"]
    read_value(slo.value_type, "--slo", args.slo, problems)
    if not re.fullmatch(function_name.PATTERN, args.name):
        expected = "lower-case letters, digits and inner dashes"
        problems.add("NAME", args.name, expected)
    if folder.exists():
        hint = "choose another name, or remove it"
        problems.add("NAME", str(folder), "a folder that does not exist yet", hint)
    if args.model:
        _check_model(args.model, problems)
    if args.model and "onnx" not in args.lang:
        hint = f"use --lang {_LANG}, or load the model in handler.py"
        problems.add("--model", str(args.model), "a template that serves ONNX", hint)
    for weights in _weights(args.model) if args.model and args.model.is_file() else ():
        if not _is_beside(args.model, weights):
            expected = "a file of weights beside the model, as the model names it"
            problems.add("--model", str(weights), expected, "export it with its weights again")
    problems.raise_if_any()


def _check_model(model: Path, problems: Problems) -> None:
    """Check that a file exists and, as far as it can be read here, that it is an ONNX model."""
    if not model.is_file():
        missing = "there is no such file" if not model.exists() else "it is not a file"
        problems.add("--model", str(model), "an ONNX file", missing)
        return
    try:
        from carpool.onnx_graph.model_file import check_onnx  # noqa: PLC0415  it needs onnx
    except ImportError:
        return  # the function's start reports it
    try:
        check_onnx(model)
    except ConfigError as error:
        problems.extend("--", error)


def _weights(model: Path) -> list[Path]:
    """Return the files with a model's weights, if these are stored outside the model.

    If the model cannot be read, for example without the package `onnx`, return the existing files
    with the names that exporters usually give them.
    """
    try:
        from carpool.onnx_graph.weights import weight_files  # noqa: PLC0415  it needs onnx

        return [model.parent / name for name in weight_files(model)]
    except Exception:  # noqa: BLE001  no package, or no model: a handler of one's own may read it
        usual = (model.with_name(model.name + end) for end in _WEIGHTS)
        return [weights for weights in usual if weights.is_file()]


def _is_beside(model: Path, weights: Path) -> bool:
    """Return whether the weights exist in or below the model's folder and can be copied with it."""
    folder = model.parent  # not resolved: in caches of downloaded models, files are links
    inside = weights.is_relative_to(folder) and ".." not in weights.relative_to(folder).parts
    return inside and weights.is_file()


def _entry(args: argparse.Namespace) -> str:
    values = {**vars(args), "key": _scalar(args.name), "slo": _scalar(args.slo)}
    return _ENTRY.format(**values)


def _scalar(text: str) -> str:
    """Return a text as YAML, quoted if it would be read as a number, a date or a Boolean."""
    written: str = yaml.safe_dump(text)
    return written.removesuffix("...\n").rstrip()


def _with_entry(path: Path, name: str, entry: str) -> str:
    """Return the stack file's text with another function; comments and order are kept.

    Raises:
        ConfigError: The entry cannot simply be appended, or the function exists already.
    """
    problems = Problems()
    old = read_text(path, problems) if path.exists() else _HEAD
    problems.raise_if_any()
    assert old is not None  # noqa: S101 - there was no problem
    text = f"{old.rstrip()}\n{entry}"
    had, has = _functions(old), _functions(text)
    if name in had or has != had | {name: yaml.safe_load(entry)[name]}:
        expected = "a stack file that ends with its functions, without this one"
        raise ConfigError([Problem(str(path), name, expected, f"add by hand:\n{entry}")])
    return text


def _functions(text: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):  # ValueError: an invalid date
        return {}
    functions = document.get("functions") if isinstance(document, dict) else None
    return functions if isinstance(functions, dict) else {}


def _copy(template: Template, folder: Path, model: Path | None) -> None:
    """Copy the author's part of the template, with a model to start from."""
    shutil.copytree(
        template.folder / template.handler_folder,
        folder,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    source = model or folder / "example.onnx"
    if source.is_file():
        shutil.copyfile(source, folder / "model.onnx")
        for weights in _weights(source):  # the model refers to them by name
            copy = folder / weights.relative_to(source.parent)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(weights, copy)


def _summary(path: Path, folder: Path, args: argparse.Namespace) -> str:
    lines = [f"{folder}/: created from the template {args.lang}", f"{path}: {args.name} added"]
    if not args.model and (folder / "model.onnx").is_file():
        lines.append(f"{folder}/model.onnx: the template's example; replace it with your model")
    option = "" if path == stack_file.default_path() else f" -f {path}"
    return "\n".join([*lines, *_warnings(args.model), f"Start it: carpool up{option}", ""])


def _warnings(model: Path | None) -> Iterator[str]:
    """Yield what keeps requests to a model from being batched, and what responses leave out."""
    try:
        from carpool.onnx_graph import model_file  # noqa: PLC0415  it needs onnx

        found = model_file.without_batch_axis(model) if model else []
        left_out = model_file.outputs_left_out(model) if model else []
    except (ImportError, ConfigError):
        return  # no package, or no model: the function's start reports it
    for name, shape in found:
        sizes = ", ".join("?" if size is None else str(size) for size in shape)
        yield (
            f"warning: the {name} of {model} has the shape [{sizes}], whose first axis is "
            "fixed, so requests cannot be batched; export the model with a dynamic first axis, or "
            "declare batch_axis in handler.py if the batch is another axis"
            if shape
            else f"warning: the {name} of {model} is a scalar, which all requests of a batch would "
            "share, so requests cannot be batched; export the model with one value for each "
            "request (a dynamic first axis), or without it"
        )
    for name in left_out:
        yield (
            f"warning: the output {name} of {model} is not a tensor, so responses leave "
            "it out; export the model with an array instead (with skl2onnx, "
            'options={"zipmap": False})'
        )
