"""Log lines as JSON objects, for what collects logs of many processes."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import Any

__all__ = ["configure", "fields"]

_FIELDS = "carpool_fields"
_MOST_CHARACTERS = 200  # of a field, which may be as long as a caller likes
_PLAIN = re.compile(r"[!#-<>-~]*", re.ASCII).fullmatch  # neither a space, nor a quote, nor "="


class _JsonLines(logging.Formatter):
    """A record as one line: time, level, part, message, and its own fields."""

    def __init__(self, common: dict[str, str]) -> None:
        super().__init__()
        self._common = common

    def format(self, record: logging.LogRecord) -> str:
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{second}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            **self._common,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _Text(logging.Formatter):
    """The same for people: the part, the message, and its fields, in quotes where they need it."""

    def format(self, record: logging.LogRecord) -> str:
        own = [f"{key}={_plain(value)}" for key, value in _fields(record).items()]
        return " ".join([super().format(record), *own])


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """A record's own fields, none of them longer than a line of a log should be."""
    own: dict[str, Any] = getattr(record, _FIELDS, {})
    return {key: _cut(value) for key, value in own.items()}


def _cut(value: object) -> object:
    if isinstance(value, str) and len(value) > _MOST_CHARACTERS:
        return value[:_MOST_CHARACTERS] + "..."
    return value


def _plain(value: object) -> str:
    """A field's value, which can be taken neither for several fields nor for another line."""
    text = str(value)
    return text if _PLAIN(text) else json.dumps(text)


def configure(part: str, *, as_json: bool, level: int = logging.INFO, **common: str) -> None:
    """Have this process log to standard error.

    Args:
        part: of Carpool, as lines name it.
        as_json: one JSON object a line.
        level: of what is logged.
        common: further fields of every JSON line; empty ones are left out.
    """
    handler = logging.StreamHandler(sys.stderr)
    known = {"part": part, **{key: value for key, value in common.items() if value}}
    handler.setFormatter(_JsonLines(known) if as_json else _Text(f"{part}: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


def fields(**values: object) -> dict[str, dict[str, object]]:
    """What a line says beside its message: ``log.info("request", extra=fields(status=200))``."""
    return {_FIELDS: values}
