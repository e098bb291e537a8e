"""Types of setting values: how each is read from text, checked and written back.

There is one `SettingType` for each shape of value; declarations of settings refer to them.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carpool import address, durations, function_name
from carpool.errors import ConfigError
from carpool.validation import rules
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SettingType", "choice", "decimal", "document", "duration", "integer", "memory"]
__all__ += ["addresses", "cores", "flag", "mebibytes", "name", "path", "socket_address", "text"]
__all__ += ["lenient_duration", "origins", "percents", "time_limit"]

_BYTES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(k|M|G|Ki|Mi|Gi)?B?")
_BYTES_PER_MB = 10**6
_ADDRESS = "HOST:PORT, as in 127.0.0.1:8080, or unix:/path"
_ORIGIN = re.compile(
    r"(?P<host>(?P<scheme>https?)://(?:[-a-z0-9.]+|\[[0-9a-f:.]+\]))(?::(?P<port>[0-9]{1,5}))?"
)
_OWN_PORTS = {"http": 80, "https": 443}
_MOST_PORT = 65535
_ALL = 100.0  # percent
_MAX_TEXT = 64  # most characters of a number; no person writes a longer one


@dataclass(frozen=True, slots=True)
class SettingType:
    """A type of setting values.

    Attributes:
        expected: Description of valid values for the user.
        read: Converts text to a value; raises ``ValueError`` (or `ConfigError` with paths inside
            the value).
        accepts: Whether a value of the right type is in range.
        write: Converts a value to text that ``read`` converts back.
    """

    expected: str
    read: Callable[[str], Any]
    accepts: Callable[[Any], bool]
    write: Callable[[Any], str]


def duration(expected: str, accepts: Callable[[float], bool]) -> SettingType:
    """Return a type for seconds in Go syntax."""
    return SettingType(expected, durations.parse, accepts, durations.format)


def lenient_duration(expected: str, accepts: Callable[[float], bool]) -> SettingType:
    """Return a type for seconds in Go syntax or as a whole number, as of-watchdog accepts."""
    return SettingType(expected, durations.parse_lenient, accepts, durations.format)


def time_limit() -> SettingType:
    """Return a type for seconds as of-watchdog accepts them; 0 means no limit and is ``inf``."""

    def read(text: str) -> float:
        return durations.parse_lenient(text) or math.inf

    def write(seconds: float) -> str:
        return "0" if seconds == math.inf else durations.format(seconds)

    return SettingType("a duration such as 30s, or 0 for no limit", read, lambda v: v > 0, write)


def decimal(expected: str, accepts: Callable[[float], bool]) -> SettingType:
    """Return a type for finite decimals without ``nan``, underscores (``1_000``) and blanks."""
    pattern = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")

    def read(text: str) -> float:
        return float(_matching(pattern, text))

    return SettingType(
        expected, read, lambda value: math.isfinite(value) and accepts(value), _plain
    )


def integer(expected: str, accepts: Callable[[int], bool]) -> SettingType:
    """Return a type for integers."""
    pattern = re.compile(r"[+-]?[0-9]+")
    return SettingType(expected, lambda text: int(_matching(pattern, text)), accepts, str)


def choice(*words: str, **older: str) -> SettingType:
    """Return a type for one of several words; ``older`` maps former names to them."""
    return SettingType(
        " or ".join(words), lambda text: older.get(text, text), words.__contains__, str
    )


def flag() -> SettingType:
    """Return a type for ``true`` or ``false``."""
    words = {"true": True, "false": False}

    def read(text: str) -> bool:
        if text not in words:
            raise ValueError(text)
        return words[text]

    return SettingType(
        "true or false", read, lambda value: isinstance(value, bool), lambda v: str(v).lower()
    )


def text() -> SettingType:
    """Return a type for any text."""
    return SettingType("text", str, lambda value: isinstance(value, str), str)


def path() -> SettingType:
    """Return a type for paths of files or folders, which need not exist."""
    return SettingType("a path", Path, lambda value: isinstance(value, Path), str)


def socket_address() -> SettingType:
    """Return a type for addresses to listen on or connect to, kept as text."""

    def read(text: str) -> str:
        try:
            address.parse(text)
        except ConfigError as error:
            raise ValueError(text) from error
        return text

    return SettingType(_ADDRESS, read, lambda value: isinstance(value, str), str)


def addresses() -> SettingType:
    """Return a type for comma-separated socket addresses."""

    def read(text: str) -> tuple[str, ...]:
        problems = Problems()
        parts = [part.strip() for part in text.split(",") if part.strip()]
        for part in parts:
            problems.attempt(partial(address.parse, part, ""))
        problems.raise_if_any()
        return tuple(parts)

    return SettingType(f"{_ADDRESS}, each", read, lambda value: isinstance(value, tuple), ",".join)


def origins() -> SettingType:
    """Return a type for comma-separated origins of web pages; ``*`` stands for all.

    Origins are converted to what browsers send: lower case, without the scheme's default port.
    """

    def read(text: str) -> tuple[str, ...]:
        parts = [part.strip() for part in text.split(",")]
        return tuple([_as_sent(part) or part for part in parts if part])

    def accepts(value: object) -> bool:
        return isinstance(value, tuple) and all(each and each == _as_sent(each) for each in value)

    return SettingType("origins such as https://app.example.com, or *", read, accepts, ",".join)


def _as_sent(origin: str) -> str | None:
    """Return an origin as browsers send it; None if it is invalid."""
    if origin == "*":
        return origin
    parts = _ORIGIN.fullmatch(origin.lower())
    if parts is None or int(parts["port"] or 0) > _MOST_PORT:
        return None
    host, port = parts["host"], int(parts["port"] or 0)
    return host if port == _OWN_PORTS[parts["scheme"]] or not parts["port"] else f"{host}:{port}"


def percents(expected: str) -> SettingType:
    """Return a type for percent by function, such as ``a=10%,b=2.5%``, at most 100 in total."""
    part = re.compile(rf"({function_name.PATTERN})=([0-9]+\.?[0-9]*)%?")

    def read(text: str) -> dict[str, float]:
        matches = [part.fullmatch(each.strip()) for each in text.split(",")] if text.strip() else []
        pairs = [(match[1], float(match[3])) for match in matches if match]
        if len(dict(pairs)) < len(matches):
            raise ValueError(text)  # one is ill-formed, or a name stands twice
        return dict(pairs)

    def accepts(value: object) -> bool:
        return isinstance(value, dict) and sum(value.values()) <= _ALL

    def write(value: dict[str, float]) -> str:
        return ",".join(f"{name}={_plain(percent)}%" for name, percent in value.items())

    return SettingType(expected, read, accepts, write)


def name(expected: str) -> SettingType:
    """Return a type for names that are resolved elsewhere, such as that of a policy."""
    return SettingType(expected, str, lambda word: bool(word) and word == word.strip(), str)


def cores(text: str) -> float:
    """Parse cores as in a platform's limits: ``2``, ``0.5`` or ``500m``.

    Raises:
        ValueError: the text is not such a quantity above 0.
    """
    milli = text.endswith("m")
    amount = float(text.removesuffix("m")) / (1000 if milli else 1)
    if not 0 < amount < math.inf:
        raise ValueError(text)
    return amount


def memory() -> SettingType:
    """Return a type for megabytes (10^6 bytes), written as 512Mi, 2Gi or 500MB."""

    def read(text: str) -> float:
        amount, unit = _SIZE.fullmatch(_matching(_SIZE, text)).groups()  # type: ignore[union-attr]
        return float(amount) * _BYTES[unit or ""] / _BYTES_PER_MB

    expected = "a size of at least 1MB such as 512Mi, 2Gi or 500MB"
    return SettingType(
        expected, read, lambda size_mb: math.isfinite(size_mb) and size_mb >= 1, _megabytes
    )


def mebibytes() -> SettingType:
    """Return a type for bytes, written as a whole number of MiB."""
    whole = integer("a whole number of at least 1", lambda value: value >= 1)
    mib = _BYTES["Mi"]
    return SettingType(
        whole.expected,
        lambda text: whole.read(text) * mib,
        lambda v: v > 0,
        lambda v: str(v // mib),
    )


def document(expected: str) -> SettingType:
    """Return a type for JSON objects, which are not interpreted further."""

    def read(text: str) -> dict[str, object]:
        value = rules.loads(text)
        if not isinstance(value, dict):
            raise ValueError(expected)  # noqa: TRY004  the text is at fault, not a type
        return value

    return SettingType(expected, read, lambda value: isinstance(value, dict), _json)


def _matching(pattern: re.Pattern[str], text: str) -> str:
    if len(text) > _MAX_TEXT or not pattern.fullmatch(text):
        raise ValueError(text)
    return text


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _megabytes(size_mb: float) -> str:
    mebibytes = size_mb * _BYTES_PER_MB / _BYTES["Mi"]
    return f"{mebibytes:.0f}Mi" if mebibytes == int(mebibytes) else f"{size_mb:f}MB"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
