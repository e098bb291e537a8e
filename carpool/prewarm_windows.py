"""When the last instance of an idle function goes, and when it comes back."""

from __future__ import annotations

import math
from dataclasses import dataclass

from carpool.validation.problems import Problems

__all__ = ["Windows"]


@dataclass(frozen=True, slots=True)
class Windows:
    """An idle function has an instance ready from prewarm_s to keep_alive_s after its last batch.

    Attributes:
        prewarm_s: An instance is released at once and loaded again so much later; 0 if it is not
            released.
        keep_alive_s: It is released (again) so long after the last execution, if no request has
            come; None if it stays.

    Raises:
        ConfigError: a time that is negative or not finite, or a release before the load.
    """

    prewarm_s: float
    keep_alive_s: float | None

    def __post_init__(self) -> None:
        """Refuse what is no interval; NumPy's numbers become Python's, as they go into plans."""
        object.__setattr__(self, "prewarm_s", float(self.prewarm_s))
        until_s = math.inf
        problems = Problems()
        if self.keep_alive_s is not None:
            until_s = float(self.keep_alive_s)
            object.__setattr__(self, "keep_alive_s", until_s)
            if until_s == math.inf:
                problems.add("keep_alive_s", until_s, "seconds, or None for an instance that stays")
        if not (0 <= self.prewarm_s < math.inf and self.prewarm_s <= until_s):
            expected = f"at least 0 and at most keep_alive_s, which is {self.keep_alive_s}"
            problems.add("prewarm_s", self.prewarm_s, expected)
        problems.raise_if_any()
