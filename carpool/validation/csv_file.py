"""Strict reading of numeric CSV files: columns in a fixed order, a problem for each bad cell."""

from __future__ import annotations

import csv
import math
from typing import TYPE_CHECKING, NamedTuple

from carpool.validation.text_file import read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from carpool.validation.problems import Problems

__all__ = ["Column", "Line", "parse", "read", "read_csv_text"]


class Column(NamedTuple):
    """The valid cells of a column."""

    expected: str
    accepts: Callable[[float], bool]


class Line(NamedTuple):
    """The numbers in a line of a file, in the order of the columns."""

    number: int
    values: tuple[float, ...]


def read(path: Path, columns: Mapping[str, Column], problems: Problems) -> list[Line]:
    """Return the lines below the header; add errors to ``problems``, with their lines."""
    text = read_csv_text(path, problems)
    return [] if text is None else parse(path, text, columns, problems)


def read_csv_text(path: Path, problems: Problems) -> str | None:
    """Return the text of a file, which gzip may have compressed; None adds a problem."""
    text = read_text(path, problems, may_be_gzip=True)
    return text.removeprefix("\ufeff") if text else text  # byte order mark


def parse(path: Path, text: str, columns: Mapping[str, Column], problems: Problems) -> list[Line]:
    """Return the lines below the header of a file's text, as `read` does."""
    reader = csv.reader(text.splitlines(), strict=True)
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except csv.Error as error:
        problems.add(f"{path}:{reader.line_num}", str(error), "comma-separated numbers")
        return []
    header = ",".join(columns)
    first_line = ",".join(rows[0][1]) if rows else ""
    if first_line != header:
        problems.add(f"{path}:1", first_line, f"the header {header}")
        return []
    if len(rows) == 1:
        problems.add(f"{path}:1", "no rows", f"at least one row below {header}")
    return [
        line for number, row in rows[1:] if (line := _line(path, number, row, columns, problems))
    ]


def _line(
    path: Path, number: int, row: list[str], columns: Mapping[str, Column], problems: Problems
) -> Line | None:
    if len(row) != len(columns):
        problems.add(
            f"{path}:{number}", ",".join(row), f"{len(columns)} cells: {','.join(columns)}"
        )
        return None
    before = len(problems)
    values = []
    for cell, (name, column) in zip(row, columns.items(), strict=True):
        value = _number(cell)
        if not (math.isfinite(value) and column.accepts(value)):
            problems.add(f"{path}:{number}: {name}", cell, column.expected)
        values.append(value)
    return Line(number, tuple(values)) if len(problems) == before else None


def _number(cell: str) -> float:
    try:
        return float(cell) if "_" not in cell else math.nan
    except ValueError:
        return math.nan
