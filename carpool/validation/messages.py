"""Reading of messages between programs of Carpool: JSON straight into structs, by msgspec.

Reading must keep up with the transport of messages, so it stops at the first error. Files and
settings, which users write, are read by `rules`, which report all errors at once.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from carpool.errors import MISSING, ConfigError, Problem, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["read", "refuse_twice"]

T = TypeVar("T")

_MISSING = re.compile(r"Object missing required field `(.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_EXPECTED = re.compile(r"Expected (.*?)(, got .*)?")
_STEP = re.compile(r"\.([^.[]+)|\[(\d+)\]")
_MAX_SHOWN = 80  # most characters of an ill-formed value that are shown


def read(decoder: msgspec.json.Decoder[T], text: bytes) -> T:
    """Decode one message.

    Raises:
        ConfigError: the first error: its place, the value, and what was expected.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise ConfigError([_problem(str(error), text)]) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError([Problem("body", "", "a JSON document", str(error))]) from error


def refuse_twice(path: str, field: str, values: Sequence[str]) -> None:
    """Refuse a list of records of which two have the same value in a field.

    Raises:
        ConfigError: names the second of them.
    """
    first: dict[str, int] = {}
    for index, value in enumerate(values):
        if first.setdefault(value, index) != index:
            expected = f"another {field} than {path}[{first[value]}]"
            raise ConfigError([Problem(f"{path}[{index}].{field}", value, expected)])


def _problem(message: str, text: bytes) -> Problem:
    """Parse a msgspec error such as "Expected `int`, got `str` - at `$.apps[0].arrivals`"."""
    reason, _, place = message.partition(" - at ")
    of_key = place.startswith("`key`")
    path = place.removeprefix("`key` in ").strip("`").removeprefix("$")
    prefix = path.removeprefix(".")
    within = f"{prefix}." if prefix else ""
    if missing := _MISSING.fullmatch(reason):
        return Problem(within + missing[1], "", "a value", MISSING)
    value = _value(path, text)
    if unknown := _UNKNOWN.fullmatch(reason):
        given = value.get(unknown[1]) if isinstance(value, dict) else ""
        return Problem(within + unknown[1], _text(given), "no such field")
    expected = _EXPECTED.fullmatch(reason)
    what = expected[1].replace("`", "") if expected else reason
    return Problem(prefix or "body", _text(value), f"{what} as each key" if of_key else what)


def _value(path: str, text: bytes) -> object:
    """Return the value at a path; its container where msgspec does not name the key of an entry."""
    value: object = ""
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        value = msgspec.json.decode(text)
        for key, index in _STEP.findall(path):
            if isinstance(value, dict) and key in value:
                value = value[key]
            elif isinstance(value, list) and index:
                value = value[int(index)]
    return value


def _text(value: object) -> str:
    return value[:_MAX_SHOWN] if isinstance(value, str) else shown(value, _MAX_SHOWN)
