"""Due times of requests as pure, seeded sequences, independent of clocks and sockets.

A changing rate is a piecewise constant intensity. Arrivals are drawn on the axis of the accumulated
intensity, where they are evenly spaced (or Poisson with rate one), and mapped back to time, so a
change of rate within a gap needs no special case.
"""

from __future__ import annotations

import csv
import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["KINDS", "Segment", "arrivals", "constant", "read_trace", "span_s"]

KINDS = ("poisson", "uniform")

_COLUMNS = ["start_s", "requests_per_minute"]
_SECONDS_PER_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Segment:
    """A period with a constant rate."""

    start_s: float
    end_s: float
    rate_rps: float


def constant(rate_rps: float, duration_s: float) -> list[Segment]:
    """Return one segment with a constant rate."""
    return [Segment(0.0, duration_s, rate_rps)]


def read_trace(lines: Iterable[str], scale: float = 1.0) -> list[Segment]:
    """Return the segments of a CSV trace ``start_s,requests_per_minute``, scaled by ``scale``.

    The last row lasts as long as the one before it.

    Raises:
        ConfigError: With every row that is not a start and a rate or is out of order, or if there
            are no rows.
    """
    problems = Problems()
    rows = [(number, row) for number, row in enumerate(csv.reader(lines), start=1) if row]
    if rows and [cell.strip() for cell in rows[0][1]] == _COLUMNS:
        rows.pop(0)
    else:
        problems.add("first line", ",".join(rows[0][1]) if rows else "", ",".join(_COLUMNS))
    points: list[tuple[float, float]] = []
    for number, row in rows:
        point = _point(row)
        if point is None:
            problems.add(f"line {number}", ",".join(row), "two numbers, neither negative")
        elif points and point[0] <= points[-1][0]:
            problems.add(f"line {number}", row[0], f"a start after {points[-1][0]:g}")
        else:
            points.append(point)
    if not points and not len(problems):
        problems.add("rows", "none", "at least one row below the first line")
    problems.raise_if_any()
    last_s = points[-1][0] - points[-2][0] if len(points) > 1 else _SECONDS_PER_MINUTE
    origin = points[0][0]
    ends = [start for start, _ in points[1:]] + [points[-1][0] + last_s]
    return [
        Segment(start - origin, end - origin, per_minute * scale / _SECONDS_PER_MINUTE)
        for (start, per_minute), end in zip(points, ends, strict=True)
    ]


def span_s(segments: list[Segment]) -> float:
    """Return the total duration of the segments."""
    return segments[-1].end_s


def arrivals(segments: Iterable[Segment], process: str, seed: int) -> Iterator[float]:
    """Yield the times at which requests are due, in seconds from the start, in order."""
    draw = random.Random(seed)  # noqa: S311 - load, not secrets
    poisson = process == "poisson"
    ahead = draw.expovariate(1.0) if poisson else 0.0
    for segment in segments:
        if segment.rate_rps <= 0:
            continue
        at_s = segment.start_s + ahead / segment.rate_rps
        while at_s < segment.end_s:
            yield at_s
            at_s += (draw.expovariate(1.0) if poisson else 1.0) / segment.rate_rps
        ahead = (at_s - segment.end_s) * segment.rate_rps


def _point(row: list[str]) -> tuple[float, float] | None:
    try:
        start_s, per_minute = (float(cell) for cell in row)
    except ValueError:
        return None
    if not (math.isfinite(start_s) and math.isfinite(per_minute)) or min(start_s, per_minute) < 0:
        return None
    return start_s, per_minute
