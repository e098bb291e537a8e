"""The stack file (stack.yaml): what faas-cli reads from it, read strictly.

Everything faas-cli accepts is accepted with the same meaning. What faas-cli silently drops (unknown
keys at any level) or fails on later (a missing handler folder, an invalid label) is reported here,
all together, each with file, line and the nearest known name. Relative paths are relative to the
stack file's folder, from which faas-cli should be run too. Nothing here copies files or talks to a
provider.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from carpool import function_name
from carpool.errors import ConfigError
from carpool.files import status
from carpool.validation.problems import Problems
from carpool.validation.text_file import read_text
from carpool.validation.yaml_reader import YamlReader
from faas_stack.stack.stack_function import FunctionReader, Source, StackFunction
from faas_stack.stack.substitute import substitute

if TYPE_CHECKING:
    from collections.abc import Mapping

    import yaml

    from carpool.errors import Problem

__all__ = ["StackFile", "StackFunction", "default_path", "load", "read"]

_TOP = ("version", "provider", "functions", "configuration")
_NAME = re.compile(function_name.PATTERN)
_NAME_EXPECTED = "lower-case letters, digits and inner dashes"


@dataclass(frozen=True, slots=True)
class StackFile:
    """A whole stack file.

    Attributes:
        folder: Folder to which its paths are relative.
        copy: Paths to copy into every handler, relative to ``folder``.
    """

    path: Path
    folder: Path
    functions: tuple[StackFunction, ...]
    copy: tuple[str, ...]


def default_path() -> Path:
    """Return stack.yaml, or stack.yml if only that exists, like faas-cli."""
    short = Path("stack.yml")
    return short if short.exists() and not Path("stack.yaml").exists() else Path("stack.yaml")


def load(path: Path, env: Mapping[str, str] = os.environ) -> StackFile:
    """Read the stack file at ``path``, with variables taken from ``env``.

    Raises:
        ConfigError: The file has problems; all of them are reported.
    """
    stack, problems = read(path, env)
    if stack is None or problems:
        raise ConfigError(problems)
    return stack


def read(
    path: Path, env: Mapping[str, str] = os.environ
) -> tuple[StackFile | None, tuple[Problem, ...]]:
    """Read a stack file like `load`, but return what could be read together with all problems.

    Returns:
        The stack file, None if there is no text or no YAML, and the problems.
    """
    problems = Problems()
    text = read_text(path, problems, missing="carpool new NAME creates one")
    if text is None:
        return None, problems.found
    text = substitute(text, env, str(path), problems)
    reader = YamlReader(str(path), problems)
    root = reader.root(text) if not problems else None
    source = Source(path.resolve().parent, env, reader, problems)
    stack = _Stack(path, source).read(root) if root is not None else None
    return stack, problems.found


class _Stack:
    """Reads the top level of a stack file."""

    def __init__(self, path: Path, source: Source) -> None:
        self.path = path
        self.folder = source.folder
        self.source = source
        self.reader = source.reader
        self.problems = source.problems

    def read(self, root: yaml.Node) -> StackFile:
        top = self.reader.mapping(root, "", _TOP)
        if "version" in top and self.reader.text(top["version"], "version") not in ("", "1.0"):
            self.reader.wrong(top["version"], "version", "1.0")
        functions = self._functions(root, top.get("functions"))
        self._check_images(functions)
        self._check_provider(root, top.get("provider"))
        return StackFile(
            path=self.path,
            folder=self.folder,
            functions=functions,
            copy=self._configuration(top.get("configuration")),
        )

    def _check_provider(self, root: yaml.Node, node: yaml.Node | None) -> None:
        if node is None:
            self.problems.missing(self.reader.name(root, "provider"), "name: openfaas")
            return
        entries = self.reader.mapping(node, "provider", ("name", "gateway"))
        name = entries.get("name")
        if name is None or self.reader.text(name, "provider.name") != "openfaas":
            self.reader.wrong(name or node, "provider.name", "openfaas")
        if gateway := entries.get("gateway"):
            self.reader.text(gateway, "provider.gateway")

    def _functions(self, root: yaml.Node, node: yaml.Node | None) -> tuple[StackFunction, ...]:
        entries = self.reader.mapping(node, "functions") if node is not None else {}
        if not entries:
            self.problems.add(
                self.reader.name(node or root, "functions"), "", "at least one function"
            )
        for name, value in entries.items():
            if not _NAME.fullmatch(name):
                self.problems.add(
                    self.reader.name(value, "functions"), name, f"a name of {_NAME_EXPECTED}"
                )
        return tuple(
            FunctionReader(self.source, name, value).read() for name, value in entries.items()
        )

    def _check_images(self, functions: tuple[StackFunction, ...]) -> None:
        owners: dict[str, StackFunction] = {}
        for function in functions:
            other = owners.setdefault(function.image, function)
            same = (other.lang, other.handler) == (function.lang, function.handler)
            if function.image and not same:
                self.problems.add(
                    f"{self.path}: functions.{function.name}.image",
                    function.image,
                    "its own image",
                    f"{other.name!r} builds the same image from another handler",
                )

    def _configuration(self, node: yaml.Node | None) -> tuple[str, ...]:
        if node is None:
            return ()
        entries = self.reader.mapping(node, "configuration", ("templates", "copy"))
        if "templates" in entries:
            for index, item in self.reader.items(entries["templates"], "configuration.templates"):
                name = f"configuration.templates[{index}]"
                self.reader.text_map(item, name, ("name", "source"))
        return self._copied(entries["copy"]) if "copy" in entries else ()

    def _copied(self, node: yaml.Node) -> tuple[str, ...]:
        paths = self.reader.texts(node, "configuration.copy")
        for index, path in enumerate(paths):
            source = self.folder / path
            if status(source) is None or self.folder not in source.resolve().parents:
                self.problems.add(
                    self.reader.name(node, f"configuration.copy[{index}]"),
                    path,
                    "an existing path below the stack file's folder",
                )
        return paths
