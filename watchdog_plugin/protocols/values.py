"""Converts decoded JSON values to arrays: accepted unchanged or refused, never rounded or parsed.

The values of several requests become one array if the result is the same as for each separately.
Nearly all requests contain plain lists of numbers, which `struct` converts in one pass; anything
else is converted by NumPy, and errors are reported then. Knows tensors by their specs, but no
protocol.
"""

from __future__ import annotations

import math
import struct
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from carpool.errors import BadRequest
from watchdog_plugin.protocols.tensors import shape_of_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from watchdog_plugin.protocols.tensors import Array, Shape, TensorSpec

__all__ = ["read_data"]

# Kinds of JSON values that a datatype of this kind takes: whole numbers are numbers, text is not.
_TAKES = {"b": "b", "i": "iu", "u": "iu", "f": "fiu"}
_KINDS = {
    "b": "booleans",
    "f": "numbers with fractions, exponents or more than 64 bits",  # all of which JSON reads alike
    "i": "numbers",
}
_ODD = {str: "text", type(None): "null", int: "numbers", float: "numbers"}
_DEEPEST = 32  # NumPy's own limit is 64, ONNX Runtime's lower
_CODES = {"FP32": "f", "FP64": "d", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q"}
_CODES |= {"UINT8": "B", "UINT16": "H", "UINT32": "I"}
_NARROW = 16  # rows of fewer values are converted together
_ALIKE = 2.0**63  # NumPy gives larger integers a type that depends on their neighbours


def read_data(spec: TensorSpec, data: Sequence[Any], shape: Shape | None = None) -> Array:
    """Convert the values of requests to one array of the input's datatype, rows concatenated.

    Args:
        spec: The input they are for.
        data: For each request, a list of values, flat or nested.
        shape: Shape of the values of each request; None to use that of the nested lists.

    Raises:
        BadRequest: Values have the wrong type or are out of range, lists are ragged, or do not fit
            ``shape``. If there are several requests, each may still be valid by itself.
    """
    array = _packed(spec, data)
    if array is None:
        array = _checked(spec, data)
    wanted = None if shape is None else shape_of_all(shape, len(data))
    if wanted is None or array.shape == wanted:
        return array
    if array.ndim == 1 and array.size == math.prod(wanted):
        return array.reshape(wanted)
    msg = (
        f"input {spec.name!r}: data has the shape {list(array.shape)}, "
        f"but its shape says {list(wanted)}"
    )
    raise BadRequest(msg)


def _packed(spec: TensorSpec, data: Sequence[Any]) -> Array | None:
    """Return the result of `_checked` in one pass; None if it has to decide."""
    code = _CODES.get(spec.datatype)
    if code is None:
        return None
    try:
        sizes, rows = _rows(data, len(spec.shape))
        if bool in {type(row[0]) for row in rows}:
            return None
        if sizes[-1] < _NARROW:
            rows = [list(chain.from_iterable(rows))]
        pack = struct.Struct(f"{len(rows[0])}{code}").pack
        packed = b"".join([pack(*row) for row in rows])
    except (TypeError, LookupError, ValueError, OverflowError, struct.error):
        return None
    array = np.frombuffer(packed, spec.dtype).reshape(len(data) * sizes[0], *sizes[1:])
    if spec.dtype.kind == "f" and not -_ALIKE < array.min() <= array.max() < _ALIKE:
        return None
    return array


def _rows(data: Sequence[Any], deepest: int) -> tuple[list[int], Sequence[Any]]:
    """Return the dimensions that all requests have in common, and the innermost lists.

    Raises:
        ValueError: Lists differ in length, or are nested deeper. A value without a length raises a
            TypeError, and an empty list an IndexError.
    """
    rows, sizes = data, []
    for _ in range(deepest):
        (size,) = set(map(len, rows))
        sizes.append(size)
        if not isinstance(rows[0][0], list):
            return sizes, rows
        rows = list(chain.from_iterable(rows))
    msg = "nested deeper"
    raise ValueError(msg)


def _checked(spec: TensorSpec, data: Sequence[Any]) -> Array:
    """Return the values as an array, after checking that each request fits the input."""
    for values in data:
        if not isinstance(values, list):
            msg = f"input {spec.name!r}: data is {type(values).__name__}, expected a list"
            raise BadRequest(msg)
    joined = data[0] if len(data) == 1 else _joined(spec, data)
    return _texts(spec, joined) if spec.datatype == "BYTES" else _numbers(spec, joined)


def _joined(spec: TensorSpec, data: Sequence[list[Any]]) -> list[Any]:
    """Concatenate the values, unless that could change how one of the requests is parsed.

    NumPy converts booleans next to numbers to numbers, and only the total number of values is
    checked against the shape: what is refused for one request alone has to be refused here.
    """
    sizes = set(map(len, data))
    if len(sizes) > 1 or (spec.datatype != "BOOL" and any(_starts_boolean(v) for v in data)):
        msg = f"input {spec.name!r}: the requests have to be read one by one"
        raise BadRequest(msg)
    return list(chain.from_iterable(data))


def _starts_boolean(values: object) -> bool:
    while isinstance(values, list) and values:
        values = values[0]
    return isinstance(values, bool)


def _check_numbers(spec: TensorSpec, data: list[Any], depth: int = 0) -> None:
    """Refuse values that are not numbers before NumPy converts them.

    NumPy would convert a list of a megabyte of text and a thousand numbers to a thousand texts of a
    megabyte.
    """
    if depth > _DEEPEST:
        msg = f"input {spec.name!r}: data is nested more than {_DEEPEST} deep"
        raise BadRequest(msg)
    if data and isinstance(data[0], list):
        for values in data:
            if not isinstance(values, list):
                raise _not_numbers(spec, values)
            _check_numbers(spec, values, depth + 1)
        return
    try:
        sum(data)  # the fastest check of all values
    except TypeError:
        odd = next(value for value in data if not isinstance(value, int | float))
        raise _not_numbers(spec, odd) from None
    except OverflowError:
        pass  # an integer too large for a float: reported below


def _not_numbers(spec: TensorSpec, value: object) -> BadRequest:
    what = "a ragged list" if isinstance(value, list) else _ODD.get(type(value), "objects")
    return BadRequest(f"input {spec.name!r}: data holds {what}, the model expects {spec}")


def _numbers(spec: TensorSpec, data: list[Any]) -> Array:
    dtype = spec.dtype
    _check_numbers(spec, data)
    try:
        array = np.array(data)
    except (ValueError, OverflowError) as error:
        msg = f"input {spec.name!r}: data is not a list of numbers, or a ragged one"
        raise BadRequest(msg) from error
    if array.size and array.dtype.kind not in _TAKES[dtype.kind]:
        what = _KINDS.get(array.dtype.kind, "numbers out of any range")
        msg = f"input {spec.name!r}: data holds {what}, the model expects {spec}"
        raise BadRequest(msg)
    try:
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise OverflowError  # NumPy would convert it to infinity
        if array.dtype == dtype:
            return array
        if dtype.kind in "iu" and array.size:
            _check_range(array, dtype)
        if dtype.kind == "f":  # as NumPy does beside fractions, so the batch makes no difference
            array = array.astype(np.float64, copy=False)
        with np.errstate(over="raise"):
            return array.astype(dtype)
    except ArithmeticError as error:
        msg = f"input {spec.name!r}: a value is out of the range of {spec.datatype}"
        raise BadRequest(msg) from error


def _check_range(values: Array, dtype: np.dtype[Any]) -> None:
    bounds = np.iinfo(dtype)
    if int(values.min()) < bounds.min or int(values.max()) > bounds.max:
        raise OverflowError


def _texts(spec: TensorSpec, data: list[Any]) -> Array:
    try:
        array = np.array(data, dtype=object)
    except ValueError as error:
        msg = f"input {spec.name!r}: data is a ragged list of texts"
        raise BadRequest(msg) from error
    if not all(isinstance(value, str) for value in array.ravel().tolist()):
        msg = f"input {spec.name!r}: data holds values other than text, the model expects {spec}"
        raise BadRequest(msg)
    return array
