"""Conversion of graphs to and from JSON, and storage of graphs of files in a profile database.

A graph is what the runtime makes of a file on this processor. It does not depend on weights in
separate files, which are not read for it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from carpool import __version__
from carpool.onnx_graph.operator_graph import Graph, Operator
from carpool.predictor.profile_file import has_table, opened
from carpool.processor import processor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from carpool.onnx_graph.operator_graph import SymbolicShape

    TensorType = tuple[str, SymbolicShape, bool]

__all__ = ["from_json", "known_graph", "to_json", "write_graph"]

_VERSION = 2
_READER = 1  # increase it when files are read as different graphs than before


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
    """Return the graph as JSON text, with each type of tensor once."""
    types: dict[TensorType, int] = {}

    def numbers(given: Iterable[TensorType]) -> list[int]:
        return [types.setdefault(each, len(types)) for each in given]

    operators = [
        [
            *(o.name, o.op_type, o.attributes),
            numbers(o.inputs),
            numbers(o.outputs),
            *(o.after, o.otherwise),
        ]
        for o in graph.operators
    ]
    parts = [graph.model, graph.fixed_batch, graph.fingerprint, list(types), operators]
    return json.dumps([_VERSION, *parts], separators=(",", ":"))


def from_json(text: str) -> Graph | None:
    """Return the graph that `to_json` wrote; None if it is from another version."""
    version, *document = json.loads(text)
    if version != _VERSION:
        return None
    model, fixed_batch, fingerprint, types, operators = document
    known = [_tensor_type(each) for each in types]
    graph = Graph(model, [_operator(each, known) for each in operators], fixed_batch)
    vars(graph)["fingerprint"] = fingerprint  # a cached property, which takes longer to compute
    return graph


def _operator(document: Sequence[Any], types: Sequence[TensorType]) -> Operator:
    name, op_type, attributes, inputs, outputs, after, otherwise = document
    before, made = (tuple([types[number] for number in each]) for each in (inputs, outputs))
    return Operator(name, op_type, attributes, before, made, tuple(after), otherwise)


def _tensor_type(document: Sequence[Any]) -> TensorType:
    datatype, shape, constant = document
    return datatype, tuple((fixed, each) for fixed, each in shape), constant


def _key(path: Path, sizes: Mapping[str, int], runtime: str) -> tuple[str, str, str]:
    reader = f"{runtime}, {processor()}, reader {_READER} of carpool {__version__}"
    return str(path.absolute()), json.dumps(dict(sorted(sizes.items()))), reader


def _state(path: Path) -> str:
    """Return the file's size, modification time and inode, which change with its content."""
    try:
        status = path.stat()
    except OSError:
        return "gone"
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"
