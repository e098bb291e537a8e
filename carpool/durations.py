"""Durations as OpenFaaS users type them, in the syntax of Go's ``time.ParseDuration``.

Only the text form is handled here. Everywhere else a duration is a ``float`` of seconds.
"""

from __future__ import annotations

import re
from decimal import Decimal

__all__ = ["DurationError", "format", "parse", "parse_lenient"]

_UNIT_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, the micro sign
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_TERM = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_EXAMPLES = "a duration such as 300ms, 1.5s or 2h45m"
_MAX_NS = 2**63 - 1  # Go keeps nanoseconds in an int64; the watchdog must be able to read ours
_MAX_TEXT = 64  # characters; keeps Decimal arithmetic trivial whatever a label holds


class DurationError(ValueError):
    """Raised when a text is not a duration in Go syntax."""


def parse(text: str) -> float:
    """Return the seconds in ``text``: ``300ms``, ``1.5h``, ``2h45m``, ``10us``, ``10µs``, ``0``.

    Raises:
        DurationError: the text is malformed, lacks a unit, or is beyond Go's range.
    """
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned == "0":
        return 0.0
    terms = _TERM.findall(unsigned) if len(text) <= _MAX_TEXT else []
    if not terms or "".join(number + unit for number, unit in terms) != unsigned:
        message = f"{text!r} is not {_EXAMPLES}"
        raise DurationError(message)
    total_ns = sum((Decimal(number) * _UNIT_NS[unit] for number, unit in terms), Decimal(0))
    if total_ns > _MAX_NS:
        message = f"{text!r} is longer than the 292 years a Go duration can hold"
        raise DurationError(message)
    seconds = float(total_ns / _UNIT_NS["s"])
    return -seconds if text[0] == "-" else seconds


def parse_lenient(text: str) -> float:
    """Return the seconds in ``text``, also allowing whole seconds without a unit.

    This is how of-watchdog and the gateway read durations.

    Raises:
        DurationError: the text is neither.
    """
    whole = text.isascii() and text.isdecimal() and len(text) <= _MAX_TEXT
    return float(text) if whole else parse(text)


def format(seconds: float) -> str:  # noqa: A001  read as durations.format, the twin of parse
    """Return the shortest Go form of ``seconds``, to the nanosecond: ``0.3`` is ``300ms``.

    Raises:
        DurationError: ``seconds`` is NaN, infinite or beyond Go's range.
    """
    if not abs(seconds) <= _MAX_NS / _UNIT_NS["s"]:
        message = f"{seconds!r} seconds cannot be written as a Go duration"
        raise DurationError(message)
    total_ns = int((Decimal(repr(abs(seconds))) * _UNIT_NS["s"]).to_integral_value())
    if total_ns == 0:
        return "0s"
    sign = "-" if seconds < 0 else ""
    return sign + (_subsecond(total_ns) if total_ns < _UNIT_NS["s"] else _clock(total_ns))


def _subsecond(total_ns: int) -> str:
    unit = next(unit for unit in ("ms", "us", "ns") if total_ns >= _UNIT_NS[unit])
    return _decimal(total_ns, _UNIT_NS[unit]) + unit


def _clock(total_ns: int) -> str:
    hours, rest_ns = divmod(total_ns, _UNIT_NS["h"])
    minutes, rest_ns = divmod(rest_ns, _UNIT_NS["m"])
    parts = [
        f"{hours}h" if hours else "",
        f"{minutes}m" if minutes else "",
        f"{_decimal(rest_ns, _UNIT_NS['s'])}s" if rest_ns else "",
    ]
    return "".join(parts)


def _decimal(amount_ns: int, unit_ns: int) -> str:
    return f"{(Decimal(amount_ns) / unit_ns).normalize():f}"
