"""Log lines as JSON objects, for what collects logs of many processes."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

__all__ = ["configure", "fields"]

_FIELDS = "carpool_fields"


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
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _Text(logging.Formatter):
    """The same for people: the part, the message, and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        own: dict[str, Any] = getattr(record, _FIELDS, {})
        return " ".join([super().format(record), *(f"{key}={value}" for key, value in own.items())])


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
