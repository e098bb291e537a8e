"""Due times of requests as pure, seeded sequences, independent of clocks and sockets.

A changing rate is a piecewise constant intensity. Arrivals are drawn on the axis of the accumulated
intensity, where they are evenly spaced (or Poisson with rate one), and mapped back to time, so a
change of rate within a gap needs no special case.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.arrivals import trace_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["KINDS", "Segment", "arrivals", "constant", "of_trace"]

KINDS = ("poisson", "uniform")


@dataclass(frozen=True, slots=True)
class Segment:
    """A period with a constant rate."""

    start_s: float
    end_s: float
    rate_rps: float


def constant(rate_rps: float, duration_s: float) -> list[Segment]:
    """Return one segment with a constant rate."""
    return [Segment(0.0, duration_s, rate_rps)]


def of_trace(path: Path, scale: float) -> list[Segment]:
    """Return the segments of a trace file, with its rates multiplied by ``scale``.

    Raises:
        ConfigError: All errors in the file, each with its line.
    """
    starts_s, rates_rps, end_s = trace_file.read(path, scale)
    return list(map(Segment, starts_s, (*starts_s[1:], end_s), rates_rps))


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
