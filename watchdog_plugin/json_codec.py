"""Reads and writes JSON: with orjson if it is installed, else with the standard library.

The only module that knows which. Both give the same results: when reading, NaN, infinities and
unpaired surrogates are invalid; when writing, NaN and infinities become ``null``, and NumPy arrays
and scalars become JSON lists and numbers. Nesting deeper than orjson's limit is invalid with both,
as the limit of the standard library depends on the version of Python.
"""

from __future__ import annotations

import json
import math
import re
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.wire import Buffer

__all__ = ["NAME", "NotJsonError", "dumps", "loads"]


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]").search
_DEEPEST_READ, _DEEPEST_WRITTEN = 1024, 254  # nested lists and objects, as in orjson
_NESTS = (dict, list, tuple)


class NotJsonError(ValueError):
    """Raised when bytes are not JSON; the message says where and why."""


def _plain(value: object) -> object:
    """Convert what the encoder does not support: NumPy arrays and scalars, and bytes as text."""
    if not getattr(getattr(value, "flags", None), "c_contiguous", True):
        # The encoder supports contiguous arrays, and writes the digits of their own type.
        return value.copy()  # type: ignore[attr-defined]
    tolist: Callable[[], object] | None = getattr(value, "tolist", None)
    if tolist is not None:
        return tolist()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    msg = f"{type(value).__name__} has no JSON form"
    raise TypeError(msg)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    if isinstance(value, str | int) or value is None:
        return value
    return _finite(_plain(value))


def _no_constant(name: str) -> object:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def _check_depth(value: object, text: str, deepest: int) -> None:
    """Raise RecursionError if the value is nested deeper, as the standard library does."""
    if text.count("[") + text.count("{") <= deepest:
        return
    level: list[Any] = [[value]]
    for _ in range(deepest + 1):
        entries = chain.from_iterable(e.values() if isinstance(e, dict) else e for e in level)
        level = [entry for entry in entries if isinstance(entry, _NESTS)]
        if not level:
            return
    raise RecursionError


def _standard_loads(data: Buffer) -> Any:  # noqa: ANN401  JSON is any of six types
    text = str(data, "utf-8")
    value = json.loads(text, parse_constant=_no_constant)
    _check_depth(value, text, _DEEPEST_READ)
    if _SURROGATE(text):
        json.dumps(value, ensure_ascii=False).encode()  # raises if it is half of a pair
    return value


def _standard_text(value: object) -> str:
    try:
        return json.dumps(value, default=_plain, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_finite(value), separators=(",", ":"))


def _standard_dumps(value: object) -> bytes:
    try:
        text = _standard_text(value)
        _check_depth(value, text, _DEEPEST_WRITTEN)
    except RecursionError as error:
        msg = f"lists and objects are nested more than {_DEEPEST_WRITTEN} deep"
        raise TypeError(msg) from error
    return text.encode()


try:
    import orjson
except ImportError:
    NAME = "json"
    _decode: Callable[[Buffer], Any] = _standard_loads
    dumps: Callable[[object], bytes] = _standard_dumps
else:
    NAME = "orjson"
    _decode = orjson.loads
    _OPTIONS = (
        orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS
    )

    def dumps(value: object) -> bytes:
        """Return ``value`` as JSON; NaN and infinities become ``null``.

        Raises:
            TypeError: A part of it has no JSON form, or is nested too deeply.
        """
        return orjson.dumps(value, default=_plain, option=_OPTIONS)


def loads(data: Buffer) -> Any:  # noqa: ANN401  JSON is any of six types
    """Return the value that ``data`` represents.

    Raises:
        NotJsonError: It is not JSON.
    """
    try:
        return _decode(data)
    except RecursionError as error:
        msg = "nested too deeply"
        raise NotJsonError(msg) from error
    except ValueError as error:
        raise NotJsonError(str(error)) from error
