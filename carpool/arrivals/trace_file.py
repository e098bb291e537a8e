"""Trace files: CSV with ``start_s,requests_per_minute``, a row for each constant rate."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from carpool.validation import csv_file
from carpool.validation.csv_file import Column
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Rates", "read"]

_S_PER_MINUTE = 60.0
_LATEST_S = 1e10  # Unix times until 2286, but not in milliseconds
_COLUMNS = {
    "start_s": Column("a number of seconds from 0 to 1e10", lambda value: 0 <= value <= _LATEST_S),
    "requests_per_minute": Column("a rate of at least 0", lambda value: value >= 0),
}


class Rates(NamedTuple):
    """A rate as a step function of time.

    Attributes:
        starts_s: Start of each step, ascending, the first at 0.
        rates_rps: Rate of each step.
        end_s: End of the last step.
    """

    starts_s: tuple[float, ...]
    rates_rps: tuple[float, ...]
    end_s: float


def read(path: Path, scale: float = 1.0) -> Rates:
    """Read a trace file, multiplying its rates by ``scale``.

    The trace begins at time 0, whatever its first start, and its last row lasts as long as the row
    before it (one minute if it is the only one).

    Raises:
        ConfigError: All errors in the file, each with its line.
    """
    problems = Problems()
    lines = csv_file.read(path, _COLUMNS, problems)
    for before, line in itertools.pairwise(lines):
        if line.values[0] <= before.values[0]:
            name, expected = f"{path}:{line.number}: start_s", f"a start after {before.values[0]:g}"
            problems.add(name, f"{line.values[0]:g}", expected)
    problems.raise_if_any()
    starts = [line.values[0] - lines[0].values[0] for line in lines]
    last_s = starts[-1] - starts[-2] if len(starts) > 1 else _S_PER_MINUTE
    rates = [line.values[1] * scale / _S_PER_MINUTE for line in lines]
    return Rates(tuple(starts), tuple(rates), starts[-1] + last_s)
