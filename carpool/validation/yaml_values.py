"""YAML as plain JSON values, with the line of each, for `carpool.validation.rules`.

An unquoted scalar is a number, ``true``, ``false``, ``null`` or else text. It is never a date, an
octal or a sexagesimal number, and ``no`` and ``on`` are text. JSON is read by the same code.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from carpool.errors import ConfigError
from carpool.validation.problems import Problems
from carpool.validation.text_file import read_text
from carpool.validation.yaml_reader import YamlReader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from carpool.validation.rules import Rule

__all__ = ["Document", "load"]

_WHOLE = re.compile(r"[-+]?[0-9]{1,18}")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Document:
    """A file's values, and the line of each path such as ``nodes[0].cpus``."""

    path: Path
    data: object
    lines: Mapping[str, int]

    def name(self, path: str) -> str:
        """Return the name of the value at ``path`` in problems, with file and line.

        The line is that of its parent if the value is missing.
        """
        known = path
        while known and known not in self.lines:
            known = known[: max(known.rfind("."), known.rfind("["), 0)]
        return f"{self.path}:{self.lines.get(known, 1)}: {path or 'document'}"

    def check(self, rule: Rule) -> None:
        """Check the values against ``rule``.

        Raises:
            ConfigError: all errors, each with its line.
        """
        problems = Problems()
        rule(self.data, "", problems)
        self.raise_if_any(problems)

    def raise_if_any(self, problems: Problems) -> None:
        """Raise one `ConfigError` with all ``problems``, their paths preceded by file and line."""
        try:
            problems.raise_if_any()
        except ConfigError as error:
            placed = [dataclasses.replace(p, name=self.name(p.name)) for p in error.problems]
            raise ConfigError(placed) from None


def load(path: Path) -> Document:
    """Read a YAML or JSON file.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or has a duplicate key.
    """
    problems = Problems()
    text = read_text(path, problems)
    problems.raise_if_any()
    reader = YamlReader(str(path), problems)
    # JSON may be indented with tabs, YAML may not; within JSON's strings there are none.
    text = text.replace("\t", " ") if text and path.suffix == ".json" else text
    root = reader.root(text or "")
    problems.raise_if_any()
    assert root is not None  # noqa: S101  without a root there was a problem
    lines: dict[str, int] = {}
    data = _Values(reader, lines).of(root, "")
    problems.raise_if_any()
    return Document(path, data, lines)


class _Values:
    """Converts nodes to values, and records their lines."""

    def __init__(self, reader: YamlReader, lines: dict[str, int]) -> None:
        self._reader = reader
        self._lines = lines

    def of(self, node: yaml.Node, path: str) -> object:
        self._lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            prefix = f"{path}." if path else ""
            entries = self._reader.mapping(node, path)
            return {key: self.of(value, f"{prefix}{key}") for key, value in entries.items()}
        if isinstance(node, yaml.SequenceNode):
            return [self.of(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)  # noqa: S101  there is no fourth kind
        return _scalar(node.value) if node.style is None else node.value


def _scalar(text: str) -> object:
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) else text
