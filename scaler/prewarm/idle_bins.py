"""How idle times are put into bins: even ones, or ones that grow with the idle time.

Pure arithmetic; nothing here counts.
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
    """Bins that share their edges; each holds its lower edge and not its upper one.

    Attributes:
        edges_s: Ascending from 0. What is not below the last is out of bounds.

    Raises:
        ConfigError: edges that are not so, or fewer than two.
    """

    edges_s: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse what is no partition."""
        edges = self.edges_s
        ascending = all(low < high for low, high in itertools.pairwise(edges))
        if len(edges) > 1 and edges[0] == 0 and ascending and edges[-1] < math.inf:
            return
        problems = Problems()
        problems.add("edges_s", edges, "at least two finite numbers, ascending from 0")
        problems.raise_if_any()

    @classmethod
    def even(cls, width_s: float, range_s: float) -> Self:
        """Bins of one width, as many as it takes to reach ``range_s``."""
        return cls(tuple(width_s * index for index in range(math.ceil(range_s / width_s) + 1)))

    @classmethod
    def growing(cls, first_s: float, ratio: float, range_s: float) -> Self:
        """Bins each ``ratio`` times as far as the one before: a relative precision for all."""
        edges = [0.0, first_s]
        while edges[-1] < range_s:
            edges.append(edges[-1] * ratio)
        return cls(tuple(edges))

    def __len__(self) -> int:
        return len(self.edges_s) - 1

    def index(self, idle_s: float) -> int:
        """The bin that holds ``idle_s``; the number of bins if it is out of bounds."""
        return max(0, bisect_right(self.edges_s, idle_s) - 1)
