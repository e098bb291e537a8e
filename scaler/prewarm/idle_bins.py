"""Bins for idle times: of equal widths, or growing with the idle time.

This is pure arithmetic; nothing is counted here.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Bins"]


@dataclass(frozen=True, slots=True)
class Bins:
    """Adjacent bins; each includes its lower edge and excludes its upper one.

    Attributes:
        edges_s: Edges in seconds, ascending from 0. Values from the last edge on are out of bounds.

    Raises:
        ConfigError: The edges are not ascending from 0, or fewer than two.
    """

    edges_s: tuple[float, ...]

    def __post_init__(self) -> None:
        """Validate the edges."""
        edges = self.edges_s
        ascending = all(low < high for low, high in itertools.pairwise(edges))
        if len(edges) > 1 and edges[0] == 0 and ascending and edges[-1] < math.inf:
            return
        problems = Problems()
        problems.add("edges_s", edges, "at least two finite numbers, ascending from 0")
        problems.raise_if_any()

    @classmethod
    def even(cls, width_s: float, range_s: float) -> Self:
        """Return bins of equal width, as many as are needed to reach ``range_s``."""
        return cls(tuple(width_s * index for index in range(math.ceil(range_s / width_s) + 1)))

    @classmethod
    def growing(cls, first_s: float, ratio: float, range_s: float) -> Self:
        """Return bins whose edges grow by the factor ``ratio``, for equal relative precision."""
        edges = [0.0, first_s]
        while edges[-1] < range_s:
            edges.append(edges[-1] * ratio)
        return cls(tuple(edges))

    def __len__(self) -> int:
        return len(self.edges_s) - 1

    def index(self, idle_s: float) -> int:
        """Return the index of the bin of ``idle_s``; the number of bins if it is out of bounds."""
        return max(0, bisect_right(self.edges_s, idle_s) - 1)
