"""Log lines as JSON objects, for what collects logs of many processes."""

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


def add_flag(parser: argparse.ArgumentParser) -> None:
    """The option by which a command is told how to log, for `configure_command`."""
    about = "log lines: text for people, or a JSON object each (default: %(default)s)"
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help=about)


def configure_command(part: str, args: argparse.Namespace, *, text: str, level: int) -> None:
    """As `configure`, for a command with the option of `add_flag`.

    Args:
        part: of Carpool, as JSON lines name it.
        args: the command's options.
        text: how lines for people begin.
        level: of what is logged in text; in JSON that is everything from ``INFO`` on.
    """
    as_json = args.log_format == "json"
    _log_to_stderr({"part": part} if as_json else text, logging.INFO if as_json else level)


def configure(part: str, *, as_json: bool, level: int = logging.INFO, **common: str) -> None:
    """Have this process log to standard error.

    Args:
        part: of Carpool, as lines name it.
        as_json: one JSON object a line.
        level: of what is logged.
        common: further fields of every JSON line; empty ones are left out.
    """
    known = {"part": part, **{key: value for key, value in common.items() if value}}
    _log_to_stderr(known if as_json else f"{part}: ", level)


def is_json() -> bool:
    """Whether this process logs JSON lines."""
    return any(isinstance(each.formatter, _JsonLines) for each in logging.getLogger().handlers)


def _log_to_stderr(begin: dict[str, str] | str, level: int) -> None:
    """Log JSON lines that begin with these fields, or lines of text that begin so."""
    handler = logging.StreamHandler(sys.stderr)
    text = f"{begin}%(message)s"
    handler.setFormatter(_Text(text) if isinstance(begin, str) else _JsonLines(begin))
    logging.basicConfig(level=level, handlers=[handler])


def fields(**values: object) -> dict[str, dict[str, object]]:
    """What a line says beside its message: ``log.info("request", extra=fields(status=200))``."""
    return {_FIELDS: values}
