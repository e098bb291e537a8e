"""Strict reading of YAML: exact types, source text of scalars, and the line of every problem.

It works on the node graph rather than on loaded objects, because faas-cli passes the text of a
scalar through as written (``1.50`` stays ``1.50``) and because only nodes know their line. Stack
files are read elsewhere.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import yaml

from carpool.validation.problems import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from carpool.validation.problems import Problems

__all__ = ["YamlReader"]

_TAG = "tag:yaml.org,2002:"
_MOST_ADDED = 100_000
_DEEPEST = 100
_VERY_MANY = 10**18
_KINDS = {
    "map": "a mapping",
    "seq": "a list",
    "null": "nothing",
    "str": "text",
    "bool": "true or false",
}


class YamlReader:
    """Reads typed values from a YAML text, and reports invalid ones."""

    def __init__(self, file: str, problems: Problems) -> None:
        self._file = file
        self._problems = problems

    def root(self, text: str) -> yaml.Node | None:
        """Return the document's root node; None, and a problem with its line, if it is not YAML."""
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f"{self._file}:{mark.line + 1}" if mark else self._file
            fault = ", ".join(filter(None, (error.context, error.problem)))
            self._problems.add(where, fault, "valid YAML")
            return None
        except (yaml.YAMLError, RecursionError) as error:  # a forbidden character has no mark
            self._problems.add(self._file, str(error).partition("\n")[0], "valid YAML")
            return None
        if node is None:
            self._problems.add(self._file, "", "a mapping", "the file is empty")
            return None
        return node if self._is_bounded(node) else None

    def _is_bounded(self, root: yaml.Node) -> bool:
        """Return whether the document stays small with all aliases expanded; add a problem if not.

        A kilobyte of aliases to aliases is enough for billions of values.
        """
        known: dict[int, tuple[float, int]] = {}
        values, depth = _written_out(root, known)
        added = values - len(known)
        if depth > _DEEPEST:
            self._problems.add(self._file, str(depth), f"at most {_DEEPEST} levels of nesting")
        elif math.isinf(added):
            expected = "valid YAML"
            self._problems.add(self._file, "", expected, "an alias contains itself")
        elif added > _MOST_ADDED:
            expected = f"aliases that stand for at most {_MOST_ADDED} values"
            self._problems.add(self._file, f"{added:.4g}", expected, "aliases refer to aliases")
        else:
            return True
        return False

    def name(self, node: yaml.Node, name: str) -> str:
        """Return the name of the value ``name`` at ``node`` in problems, with file and line."""
        return f"{self._file}:{node.start_mark.line + 1}: {name}"

    def wrong(self, node: yaml.Node, name: str, expected: str, hint: str = "") -> None:
        """Report that the value at ``node`` is not ``expected``."""
        self._problems.add(self.name(node, name), self._shown(node), expected, hint)

    def mapping(
        self, node: yaml.Node, name: str, known: Iterable[str] | None = None
    ) -> dict[str, yaml.Node]:
        """Return the entries of a mapping; report and omit keys outside ``known``."""
        if _is_null(node):
            return {}
        if not isinstance(node, yaml.MappingNode):
            self.wrong(node, name, "a mapping")
            return {}
        self._report_twins(node, name)
        try:
            yaml.constructor.SafeConstructor().flatten_mapping(node)  # resolves "<<" merges
        except (yaml.constructor.ConstructorError, RecursionError):
            self.wrong(node, f"{name}.<<", "a mapping, or a list of mappings, to merge")
        entries: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if not _is_scalar(key):
                self.wrong(key, name, "a plain key")
            elif known is not None and key.value not in known:
                full = f"{name}.{key.value}" if name else key.value
                hint = nearest(key.value, known)
                expected = "a known key" if hint else f"one of {', '.join(sorted(known))}"
                self._problems.add(self.name(key, full), self._shown(value), expected, hint)
            else:
                entries[key.value] = value
        return entries

    def text(self, node: yaml.Node, name: str) -> str:
        """Return a scalar as written; empty if there is no value."""
        if _is_null(node):
            return ""
        if isinstance(node, yaml.ScalarNode):
            return str(node.value)
        self.wrong(node, name, "text")
        return ""

    def flag(self, node: yaml.Node, name: str) -> bool:
        """Return a boolean."""
        if node.tag != f"{_TAG}bool":
            self.wrong(node, name, "true or false")
            return False
        return str(node.value).lower() in ("true", "yes", "on")

    def texts(self, node: yaml.Node, name: str) -> tuple[str, ...]:
        """Return a list of scalars."""
        return tuple(self.text(item, f"{name}[{index}]") for index, item in self.items(node, name))

    def items(self, node: yaml.Node, name: str) -> list[tuple[int, yaml.Node]]:
        """Return the numbered entries of a list."""
        if _is_null(node):
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.wrong(node, name, "a list")
            return []
        return list(enumerate(node.value))

    def text_map(
        self, node: yaml.Node, name: str, known: Iterable[str] | None = None
    ) -> dict[str, str]:
        """Return a mapping of names to scalars."""
        entries = self.mapping(node, name, known)
        return {key: self.text(value, f"{name}.{key}") for key, value in entries.items()}

    def _report_twins(self, node: yaml.MappingNode, name: str) -> None:
        seen: set[str] = set()
        for key, _ in node.value:
            if not _is_scalar(key):
                continue
            if key.value in seen:
                self.wrong(key, name, "each key once")
            seen.add(key.value)

    def _shown(self, node: yaml.Node) -> str:
        if _is_scalar(node):
            return str(node.value)
        return _KINDS.get(node.tag.removeprefix(_TAG), node.tag)


def _written_out(node: yaml.Node, known: dict[int, tuple[float, int]]) -> tuple[float, int]:
    """Return the number of values and of levels in a node with all aliases expanded.

    Args:
        node: The node.
        known: Results by node visited already; each node is visited once.
    """
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = math.inf, 0  # until it is known: a node met again is inside of itself
    below: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        below = [each for pair in node.value for each in pair]
    elif isinstance(node, yaml.SequenceNode):
        below = node.value
    counted = [_written_out(each, known) for each in below]
    counts = [count for count, _ in counted]
    endless = math.inf in counts
    values = math.inf if endless else min(1 + sum(counts), _VERY_MANY)  # no overflow on the way
    count_and_depth = values, 1 + max((depth for _, depth in counted), default=0)
    known[id(node)] = count_and_depth
    return count_and_depth


def _is_scalar(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode)


def _is_null(node: yaml.Node) -> bool:
    return _is_scalar(node) and node.tag == f"{_TAG}null"
