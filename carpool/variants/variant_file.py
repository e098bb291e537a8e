"""Files of variants, written by `carpool register` and read by scenarios.

    {"app": "vision", "variants": [
      {"name": "small-int8", "architecture": "small", "accuracy": 0.71, "cpu": 1, "gpu": 0,
       "memory_mb": 120, "load_s": 0.4, "latencies_ms": {"1": 4.1, "8": 21.5}}]}

An entry may have a ``file``, the path of the model relative to this file, and ``measured``, which
identifies the data it was measured with. Unknown keys are errors.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from carpool.errors import ConfigError, Problem
from carpool.validation import rules
from carpool.validation.problems import Problems
from carpool.validation.text_file import read_text
from carpool.variants.variant import NAME_PATTERN, Variant

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["read_variants", "text_of"]

_MS_PER_S = 1000.0
_AMOUNT = rules.number("a number of at least 0", lambda value: value >= 0)
_ABOVE_ZERO = rules.number("a number above 0", lambda value: value > 0)
_WORD = rules.text("text that is not empty")


def _latencies(value: object, path: str, problems: Problems) -> None:
    rules.mapping(_ABOVE_ZERO)(value, path, problems)
    for batch in value if isinstance(value, dict) else ():
        if not (batch.isdecimal() and int(batch) > 0):
            problems.add(f"{path}.{batch}", batch, "a batch size of at least 1")
    if value == {}:
        problems.add(path, "{}", "the latency of at least one batch size")


_VARIANT = rules.record(
    {
        "name": rules.text("a name of a-z, 0-9 and inner '-', at most 40 long", NAME_PATTERN),
        "architecture": _WORD,
        "accuracy": rules.number("a share from 0 to 1", lambda value: 0 <= value <= 1),
        "cpu": _ABOVE_ZERO,
        "gpu": rules.number("a percentage from 0 to 100", lambda value: 0 <= value <= 100),  # noqa: PLR2004
        "memory_mb": _AMOUNT,
        "load_s": _AMOUNT,
        "latencies_ms": _latencies,
        "file": _WORD,
        "measured": _WORD,
    },
    required=frozenset({"name", "accuracy", "latencies_ms"}),
)
_FILE = rules.record(
    {"app": _WORD, "variants": rules.each(_VARIANT, unique="name")},
    required=frozenset({"variants"}),
)


def read_variants(path: Path) -> tuple[Variant, ...]:
    """Return the variants of a file.

    Raises:
        ConfigError: all errors, each with its path in the file.
    """
    problems = Problems()
    text = read_text(path, problems)
    problems.raise_if_any()
    try:
        data: Any = rules.loads(text or "")
    except rules.NotJsonError as error:
        raise ConfigError([Problem(str(path), "", "a JSON document", str(error))]) from error
    file_problems = Problems()
    _FILE(data, "", file_problems)
    try:
        file_problems.raise_if_any()
    except ConfigError as error:
        problems.extend(f"{path}: ", error)
        problems.raise_if_any()
    return tuple(_variant(item) for item in data["variants"])


def text_of(app: str, entries: list[dict[str, Any]]) -> str:
    """Return the text of such a file, with one entry per line."""
    lines = ",\n".join(f"  {json.dumps(entry)}" for entry in entries)
    return f'{{"app": {json.dumps(app)}, "variants": [\n{lines}\n]}}\n'


def _variant(item: Mapping[str, Any]) -> Variant:
    others = {"latencies_ms", "file", "measured"}
    fields = {key: value for key, value in item.items() if key not in others}
    latencies_ms = item["latencies_ms"]
    return Variant(
        **fields, latencies_s={int(batch): ms / _MS_PER_S for batch, ms in latencies_ms.items()}
    )
