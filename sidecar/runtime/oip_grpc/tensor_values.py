"""Values of tensors, as typed fields of a message and as bytes of the binary tensor extension.

The bytes are those of the protocol's raw contents as well: numbers little-endian, and an element of
``BYTES`` as its length in four bytes followed by itself. Pure.
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["FIELDS", "VALUE_BYTES", "from_bytes", "to_bytes"]


class _Field(NamedTuple):
    name: str
    code: str  # of the array type; empty: texts


FIELDS = {
    "BOOL": _Field("bool_contents", "B"),
    "INT8": _Field("int_contents", "b"),
    "INT16": _Field("int_contents", "h"),
    "INT32": _Field("int_contents", "i"),
    "INT64": _Field("int64_contents", "q"),
    "UINT8": _Field("uint_contents", "B"),
    "UINT16": _Field("uint_contents", "H"),
    "UINT32": _Field("uint_contents", "I"),
    "UINT64": _Field("uint64_contents", "Q"),
    "FP32": _Field("fp32_contents", "f"),
    "FP64": _Field("fp64_contents", "d"),
    "BYTES": _Field("bytes_contents", ""),
}
_CODES = {datatype: field.code for datatype, field in FIELDS.items() if field.code}
VALUE_BYTES = {
    **{datatype: array(code).itemsize for datatype, code in _CODES.items()},
    **dict.fromkeys(("FP16", "BF16"), 2),  # which have bytes alone
}
_LENGTH = struct.Struct("<I")


def to_bytes(datatype: str, values: Iterable[Any]) -> bytes:
    """Return values of a datatype of `FIELDS` as bytes.

    Raises:
        OverflowError: a number is out of the datatype's range.
        TypeError: a value is of another type.
    """
    if datatype == "BYTES":
        return b"".join([part for value in values for part in (_LENGTH.pack(len(value)), value)])
    return _little_endian(array(_CODES[datatype], values)).tobytes()


def from_bytes(datatype: str, data: memoryview) -> Sequence[Any]:
    """Return the values in ``data``, of a datatype of `FIELDS`.

    Raises:
        ValueError: its length does not fit.
    """
    if datatype == "BYTES":
        return list(_texts(data))
    numbers = array(_CODES[datatype])
    numbers.frombytes(data)
    _little_endian(numbers)
    return [value != 0 for value in numbers] if datatype == "BOOL" else numbers


def _little_endian(numbers: array[Any]) -> array[Any]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _texts(data: memoryview) -> Iterable[bytes]:
    at = 0
    while at < len(data):
        start = at + _LENGTH.size
        if start > len(data) or (at := start + _LENGTH.unpack_from(data, at)[0]) > len(data):
            msg = "an element of BYTES is longer than its tensor"
            raise ValueError(msg)
        yield bytes(data[start:at])
