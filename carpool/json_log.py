"""Log lines as JSON objects, for collecting the logs of many processes."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

__all__ = ["add_flag", "configure", "configure_command", "fields", "is_json"]

_FIELDS = "carpool_fields"
_MOST_CHARACTERS = 200  # most characters of a field, whose length callers determine
_PLAIN = re.compile(r"[!#-<>-~]*", re.ASCII).fullmatch  # neither a space, nor a quote, nor "="


class _JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: time, level, part, message, and its extra fields."""

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
    """Formats a record as text: part, message, and its extra fields, quoted where needed."""

    def format(self, record: logging.LogRecord) -> str:
        own = [f"{key}={_plain(value)}" for key, value in _fields(record).items()]
        return " ".join([super().format(record), *own])


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the extra fields of a record, cut to a reasonable length."""
    own: dict[str, Any] = getattr(record, _FIELDS, {})
    return {key: _cut(value) for key, value in own.items()}


def _cut(value: object) -> object:
    if isinstance(value, str) and len(value) > _MOST_CHARACTERS:
        return value[:_MOST_CHARACTERS] + "..."
    return value


def _plain(value: object) -> str:
    """Return a field's value as text, quoted if it could be misread as several fields or lines."""
    text = str(value)
    return text if _PLAIN(text) else json.dumps(text)


def add_flag(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--log-format``, which `configure_command` reads."""
    about = "log format: text, or a JSON object per line (default: %(default)s)"
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help=about)


def configure_command(part: str, args: argparse.Namespace, *, text: str, level: int) -> None:
    """Configure logging as `configure` does, for a command with the option of `add_flag`.

    Args:
        part: Part of Carpool, as named in JSON lines.
        args: The command's options.
        text: Prefix of text lines.
        level: Lowest level that is logged as text; in JSON it is always ``INFO``.
    """
    as_json = args.log_format == "json"
    _log_to_stderr({"part": part} if as_json else text, logging.INFO if as_json else level)


def configure(part: str, *, as_json: bool, **common: str) -> None:
    """Configure this process to log to standard error.

    Args:
        part: Part of Carpool, as named in the lines.
        as_json: Whether to log one JSON object per line.
        common: Further fields of every JSON line; empty ones are left out.
    """
    known = {"part": part, **{key: value for key, value in common.items() if value}}
    _log_to_stderr(known if as_json else f"{part}: ", logging.INFO)


def is_json() -> bool:
    """Return whether this process logs JSON lines."""
    return any(isinstance(each.formatter, _JsonLines) for each in logging.getLogger().handlers)


def _log_to_stderr(begin: dict[str, str] | str, level: int) -> None:
    """Log JSON lines that begin with these fields, or text lines with this prefix."""
    handler = logging.StreamHandler(sys.stderr)
    text = f"{begin}%(message)s"
    handler.setFormatter(_Text(text) if isinstance(begin, str) else _JsonLines(begin))
    logging.basicConfig(level=level, handlers=[handler])


def fields(**values: object) -> dict[str, dict[str, object]]:
    """Return extra fields of a line: ``log.info("request", extra=fields(status=200))``."""
    return {_FIELDS: values}
