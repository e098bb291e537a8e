"""Malformed ONNX files are refused by the documented error, with a reason."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from carpool.errors import ConfigError
from carpool.onnx_graph.model_file import read_onnx
from carpool.onnx_graph.optimised import read_graph
from tests.attack import onnx_files

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.attack.effort import Effort

GRAPH, NODES, INITIALIZERS = 7, 1, 5  # ONNX's numbers of fields


def bytes_field(number: int, *parts: bytes) -> bytes:
    """Encode a field of bytes, text or a message."""
    value = b"".join(parts)
    return varint(number << 3 | 2) + varint(len(value)) + value


def number_field(number: int, value: int) -> bytes:
    """Encode a field of an integer."""
    return varint(number << 3) + varint(value % (1 << 64))


def varint(value: int) -> bytes:
    """Encode seven bits a byte, the lowest first."""
    more = [value & 0x7F | 0x80] if value > 0x7F else [value]
    return bytes(more) + (varint(value >> 7) if value > 0x7F else b"")


NODE = bytes_field(1, b"x") + bytes_field(2, b"y")
ATTRIBUTE = bytes_field(1, b"alpha")


def file(*graph: bytes) -> bytes:
    """Encode a model with these parts of a graph."""
    return bytes_field(GRAPH, *graph)


def tensor(*dims: int) -> bytes:
    """Encode a constant of these sizes without values."""
    parts = [number_field(1, dim) for dim in dims]
    return bytes_field(INITIALIZERS, *parts, number_field(2, 1), bytes_field(8, b"w"))


def attribute(number: int, value: bytes) -> bytes:
    """Encode an operator with an attribute whose field ``number`` has these bytes."""
    return bytes_field(NODES, NODE, bytes_field(5, ATTRIBUTE, bytes_field(number, value)))


MALFORMED = {
    "floats that end midway": file(attribute(7, struct.pack("<fh", 1.0, 2))),
    "a constant of negative size": file(bytes_field(NODES, NODE), tensor(-1)),
    "a constant no disk can hold": file(bytes_field(NODES, NODE), tensor(1 << 62, 1 << 62)),
    "a name that is not UTF-8": file(bytes_field(NODES, bytes_field(1, b"\xff"))),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_file_is_refused(tmp_path: Path, what: str) -> None:
    """The reader's error has the file's name."""
    path = tmp_path / "model.onnx"
    path.write_bytes(MALFORMED[what])
    with pytest.raises(ConfigError, match=r"model\.onnx.* an ONNX model"):
        read_onnx(path)


@pytest.mark.parametrize("size", [3, 5])
def test_float_with_wrong_size_is_skipped(tmp_path: Path, size: int) -> None:
    """The format skips it as an unknown field, so the runtime reports it missing."""
    path = tmp_path / "model.onnx"
    path.write_bytes(file(attribute(2, b"\0" * size)))
    with pytest.raises(ConfigError, match=r"model\.onnx"):
        read_graph(path)


def test_operators_without_their_inputs_are_refused(tmp_path: Path) -> None:
    """A convolution or normalisation without inputs is not folded."""
    path = tmp_path / "model.onnx"
    for operator in (b"Conv", b"BatchNormalization"):
        path.write_bytes(file(bytes_field(NODES, bytes_field(4, operator))))
        with pytest.raises(ConfigError):
            read_graph(path)


@pytest.mark.parametrize("reader", [onnx_files.read, onnx_files.loaded])
def test_mutated_file_is_accepted_or_refused(
    tmp_path: Path, effort: Effort, reader: Callable[[Path, Iterable[int]], Counter[str]]
) -> None:
    """Prediction and serving refuse a mutated file by their own error, or accept it."""
    rounds = effort.rounds(f"ONNX files {reader.__name__}", full=50_000, short=400)
    found = reader(tmp_path, rounds)
    assert {"taken", "refused"} == found.keys()
