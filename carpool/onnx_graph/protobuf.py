"""The wire format of protocol buffers: fields of a message, read without copying, and written.

Knows no schema; what a field number means is the business of who reads and writes messages.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Field",
    "MalformedError",
    "bytes_field",
    "fields",
    "floats",
    "integers",
    "number_field",
]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_CONTINUES = 0x80
_LARGEST_SHIFT = 63
_SIGN = 1 << 63
_FLOAT = struct.Struct("<f")


class MalformedError(ValueError):
    """The bytes are no protocol buffer message."""


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        number: Of the field in its schema.
        value: The number of an integer field, the bytes of any other.
        start: Where the field begins, its tag included.
        end: Where the next one begins.
    """

    number: int
    value: int | memoryview
    start: int
    end: int

    def bytes(self) -> memoryview:
        """The value of a field of bytes.

        Raises:
            MalformedError: it is a number.
        """
        if isinstance(self.value, int):
            msg = f"field {self.number} is a number where bytes belong"
            raise MalformedError(msg)
        return self.value

    def text(self) -> str:
        """The value of a field of text.

        Raises:
            MalformedError: it is a number, or not UTF-8.
        """
        try:
            return bytes(self.bytes()).decode()
        except UnicodeDecodeError as error:
            msg = f"field {self.number} is not UTF-8 where text belongs"
            raise MalformedError(msg) from error

    def integer(self) -> int:
        """The value of an integer field, with its sign.

        Raises:
            MalformedError: it is bytes.
        """
        if not isinstance(self.value, int):
            msg = f"field {self.number} is bytes where a number belongs"
            raise MalformedError(msg)
        return self.value - 2 * _SIGN if self.value & _SIGN else self.value


def fields(data: memoryview) -> Iterator[Field]:
    """The fields of a message, in order.

    Raises:
        MalformedError: the bytes are no message.
    """
    at, size = 0, len(data)
    while at < size:
        start = at
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield Field(tag >> 3, value, start, at)
            continue
        if kind == _BYTES:
            length, at = _varint(data, at)
        elif kind in (_FIXED32, _FIXED64):
            length = 4 if kind == _FIXED32 else 8
        else:
            msg = f"wire type {kind} at byte {start}"
            raise MalformedError(msg)
        if at + length > size:
            msg = f"a field at byte {start} ends {at + length - size} bytes beyond the end"
            raise MalformedError(msg)
        yield Field(tag >> 3, data[at : at + length], start, at + length)
        at += length


def integers(field: Field) -> list[int]:
    """The integers of a repeated field, whether it is packed or one of several."""
    if isinstance(field.value, int):
        return [field.integer()]
    found, at = [], 0
    while at < len(field.value):
        value, at = _varint(field.value, at)
        found.append(value - 2 * _SIGN if value & _SIGN else value)
    return found


def floats(field: Field) -> list[float]:
    """The numbers of a repeated field of 32-bit floats, whether it is packed or one of several.

    Raises:
        MalformedError: its bytes are no whole number of floats.
    """
    value = field.bytes()
    if len(value) % _FLOAT.size:
        msg = f"field {field.number} has {len(value)} bytes where floats of 4 belong"
        raise MalformedError(msg)
    return [number for (number,) in _FLOAT.iter_unpack(value)]


def bytes_field(number: int, *parts: bytes | memoryview) -> bytes:
    """A field of bytes, text or a message, from the parts of its value."""
    length = sum(map(len, parts))
    return b"".join([_encoded(number << 3 | _BYTES), _encoded(length), *parts])


def number_field(number: int, value: int) -> bytes:
    """A field of an integer."""
    return _encoded(number << 3 | _VARINT) + _encoded(value % (2 * _SIGN))


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift <= _LARGEST_SHIFT:
        byte = data[at]
        at += 1
        value |= (byte & (_CONTINUES - 1)) << shift
        if byte < _CONTINUES:
            return value % (2 * _SIGN), at
        shift += 7
    msg = f"an integer without end at byte {at}"
    raise MalformedError(msg)


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value >= _CONTINUES:
        out.append(value & (_CONTINUES - 1) | _CONTINUES)
        value >>= 7
    out.append(value)
    return bytes(out)
