"""Trace files: CSV with ``start_s,requests_per_minute``, a row for each constant rate."""

from __future__ import annotations

import io
import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from carpool.validation import csv_file
from carpool.validation.csv_file import Column
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["Rates", "read"]

_S_PER_MINUTE = 60.0
_LATEST_S = 1e10  # Unix times until 2286, but not in milliseconds
_COLUMNS = {
    "start_s": Column(
        "a number of seconds from 0 to 1e10, for a date its Unix time",
        lambda value: 0 <= value <= _LATEST_S,
    ),
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
    text = csv_file.read_csv_text(path, problems)
    problems.raise_if_any()
    rows = _numbers(text or "")
    if rows is None:
        rows = _checked(path, text or "")
    starts = rows[:, 0] - rows[0, 0]
    last_s = starts[-1] - starts[-2] if len(starts) > 1 else _S_PER_MINUTE
    rates = rows[:, 1] * scale / _S_PER_MINUTE
    return Rates(tuple(starts.tolist()), tuple(rates.tolist()), float(starts[-1] + last_s))


def _numbers(text: str) -> NDArray[np.float64] | None:
    """Return the rows of a text without mistakes in 2 % of the time that `_checked` takes.

    None if there may be a mistake, or if only `_checked` reads the text, as with quoted cells.
    """
    header, _, rest = text.partition("\n")
    if header != ",".join(_COLUMNS) or not rest.strip():
        return None
    try:
        rows = np.loadtxt(io.StringIO(rest), delimiter=",", comments=None, ndmin=2)
    except ValueError:
        return None
    if rows.shape[1] != len(_COLUMNS):
        return None
    starts, rates = rows.T
    ordered = starts[0] >= 0 and starts[-1] <= _LATEST_S and bool((np.diff(starts) > 0).all())
    return rows if ordered and ((rates >= 0) & np.isfinite(rates)).all() else None


def _checked(path: Path, text: str) -> NDArray[np.float64]:
    """Return the rows of a text.

    Raises:
        ConfigError: All errors in it, each with its line.
    """
    problems = Problems()
    lines = csv_file.parse(path, text, _COLUMNS, problems)
    for before, line in itertools.pairwise(lines):
        if line.values[0] <= before.values[0]:
            name, expected = f"{path}:{line.number}: start_s", f"a start after {before.values[0]:g}"
            problems.add(name, f"{line.values[0]:g}", expected)
    problems.raise_if_any()
    return np.array([line.values for line in lines])
