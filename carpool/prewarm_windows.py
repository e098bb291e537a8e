"""Times at which the last instance of an idle function is released and loaded again."""

from __future__ import annotations

import math
from dataclasses import dataclass

from carpool.validation.problems import Problems

__all__ = ["Windows"]


@dataclass(frozen=True, slots=True)
class Windows:
    """Times relative to an idle function's last batch at which it has an instance ready.

    An instance is ready from ``prewarm_s`` to ``keep_alive_s`` after the last batch.

    Attributes:
        prewarm_s: Time after which an instance that is released at once is loaded again; 0 if it is
            not released.
        keep_alive_s: Time after which the instance is released (again) if no request has arrived;
            None if it stays.

    Raises:
        ConfigError: a time is negative or not finite, or the release precedes the load.
    """

    prewarm_s: float
    keep_alive_s: float | None

    def __post_init__(self) -> None:
        """Refuse invalid intervals; convert NumPy numbers to Python's, as they go into plans."""
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
