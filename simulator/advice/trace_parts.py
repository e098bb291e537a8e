"""Choose a few parts of a trace that are spread over all of it and so represent it."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool import durations
from carpool.arrivals.processes import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Part", "cut", "parts"]

_LONGEST_S, _USUAL_S, _SHORTEST_S = 600.0, 300.0, 60.0
_REQUESTS = 100_000  # mean number in a part; more would add little information


@dataclass(frozen=True, slots=True)
class Part:
    """A section of a trace and the seed of its requests.

    Attributes:
        start_s, length_s: The section.
        seed: Seed of the requests.
        moved: Whether it was moved to where requests arrive.
    """

    start_s: float
    length_s: float
    seed: int
    moved: bool = False

    @property
    def name(self) -> str:
        """The part as text, such as ``20m0s+1200s, seed 2``."""
        start = durations.format(round(self.start_s))
        return f"{start}+{self.length_s:.0f}s, seed {self.seed}"


def parts(trace: Trace, count: int, seed: int) -> Sequence[Part]:
    """Return up to ``count`` parts of equal length, each with its own seed.

    The trace is divided into that many sections, and one part is drawn from each. A part without
    requests says nothing about misses, so it is moved to where requests arrive, if any do in its
    section. A trace that is too short for this is used as a whole several times, with different
    seeds. The order spreads even the first few parts over the whole trace.
    """
    length_s = _length_s(trace, count)
    draw = random.Random(f"parts {seed}")  # noqa: S311  a sample, not a secret
    each_s = trace.end_s / count
    starts = [number * each_s + draw.random() * (each_s - length_s) for number in range(count)]
    last_s = trace.end_s - length_s
    found = []
    for place, number in enumerate(sorted(range(count), key=_reversed)):
        start_s = min(max(starts[number], 0.0), last_s)
        idle = not _busy(trace, start_s, start_s + length_s)
        busy = _busy(trace, number * each_s, (number + 1) * each_s) if idle else []
        if moved := bool(busy):
            at_s = draw.uniform(*draw.choice(busy))
            start_s = min(max(at_s - draw.random() * length_s, 0.0), last_s)
        found.append(Part(start_s, length_s, seed + place, moved))
    return found


def cut(trace: Trace, part: Part) -> Trace:
    """Return the part as a trace that starts at 0."""
    first, last = part.start_s, part.start_s + part.length_s
    steps = [(start - first, rate) for start, _, rate in _rows(trace, first, last)]
    return Trace(tuple(at for at, _ in steps), tuple(rate for _, rate in steps), part.length_s)


def _busy(trace: Trace, first: float, last: float) -> list[tuple[float, float]]:
    """Return the start and end of the rows with requests between two times."""
    return [(start, end) for start, end, rate in _rows(trace, first, last) if rate > 0]


def _rows(trace: Trace, first: float, last: float) -> Iterator[tuple[float, float, float]]:
    """Yield start, end and rate of the rows between two times."""
    starts = trace.starts_s
    place = max(0, bisect_right(starts, first) - 1)
    until = bisect_left(starts, last)
    ends = [*starts[place + 1 : until + 1], trace.end_s]
    for start, end, rate in zip(
        starts[place:until], ends, trace.rates_rps[place:until], strict=False
    ):
        if end > first:
            yield max(start, first), min(end, last), rate


def _length_s(trace: Trace, count: int) -> float:
    most_s = max(_SHORTEST_S, min(_LONGEST_S, _REQUESTS / trace.mean_rate))
    own_s = trace.end_s / count
    if own_s < min(_USUAL_S, most_s):
        own_s = trace.end_s  # too little for a part each
    return min(own_s, most_s, trace.end_s)


def _reversed(number: int) -> int:
    """Return the number with its bits in reverse order, as in 0, 4, 2, 6, 1."""
    return int(f"{number:016b}"[::-1], 2)
