"""Conversion of graphs to and from JSON, and storage of graphs of files in a profile database.

A graph is what the runtime makes of a file on this processor. It does not depend on weights in
separate files, which are not read for it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from carpool import __version__
from carpool.predictor.graph import Graph, Operator
from carpool.predictor.profile_file import has_table, opened
from carpool.processor import processor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

__all__ = ["from_json", "known_graph", "to_json", "write_graph"]

_FORM = 1
_READER = 1  # raise it where files of before are read as other graphs


def known_graph(database: Path, path: Path, sizes: Mapping[str, int], runtime: str) -> Graph | None:
    """Return the stored graph of a file; None if the database lacks it or the file has changed.

    Raises:
        ConfigError: the file is not a profile database.
    """
    if not database.is_file():
        return None
    with opened(database) as connection:
        if not has_table(connection, "graphs"):
            return None
        query = "SELECT document FROM graphs WHERE (file, sizes, runtime, state) = (?, ?, ?, ?)"
        row = connection.execute(query, (*_key(path, sizes, runtime), _state(path))).fetchone()
    return from_json(row[0]) if row else None


def write_graph(
    database: Path, path: Path, sizes: Mapping[str, int], runtime: str, graph: Graph
) -> None:
    """Store the graph of a file.

    Raises:
        ConfigError: the file is not a profile database, or cannot be written.
    """
    row = (*_key(path, sizes, runtime), _state(path), to_json(graph))
    with opened(database, write=True) as connection:
        connection.execute("INSERT OR REPLACE INTO graphs VALUES (?, ?, ?, ?, ?)", row)


def to_json(graph: Graph) -> str:
    """Return the graph as JSON text."""
    operators = [
        [o.name, o.kind, o.attributes, o.inputs, o.outputs, o.after, o.otherwise]
        for o in graph.operators
    ]
    document = [_FORM, graph.model, graph.fixed_batch, operators]
    return json.dumps(document, separators=(",", ":"))


def from_json(text: str) -> Graph | None:
    """Return the graph that `to_json` wrote; None if it is from another version."""
    form, *document = json.loads(text)
    if form != _FORM:
        return None
    model, fixed_batch, operators = document
    return Graph(model, [_operator(each) for each in operators], fixed_batch)


def _operator(document: Sequence[Any]) -> Operator:
    name, kind, attributes, inputs, outputs, after, otherwise = document
    return Operator(
        name, kind, attributes, _forms(inputs), _forms(outputs), tuple(after), otherwise
    )


def _forms(
    document: Iterable[Sequence[Any]],
) -> tuple[tuple[str, tuple[tuple[int, int], ...], bool], ...]:
    return tuple(
        (datatype, tuple((fixed, each) for fixed, each in shape), constant)
        for datatype, shape, constant in document
    )


def _key(path: Path, sizes: Mapping[str, int], runtime: str) -> tuple[str, str, str]:
    reader = f"{runtime}, {processor()}, reader {_READER} of carpool {__version__}"
    return str(path.absolute()), json.dumps(dict(sorted(sizes.items()))), reader


def _state(path: Path) -> str:
    """Return the file's size, modification time and inode, which change with its content."""
    try:
        found = path.stat()
    except OSError:
        return "gone"
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ino}"
