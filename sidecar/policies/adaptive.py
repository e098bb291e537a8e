"""The batch size with the least mean completion time, learned without a profile or a window.

A batch of n takes ``a + b n``. If m waiting requests are served in batches of n, their mean
completion time is ``(m/n + 1)/2 * (a + b n)``, least at ``n = sqrt(m a / b)``: all together if
weights dominate (a large), one after the other if arithmetic does (a small, where in one large
batch the first waits for the last and nothing is gained). If that size is too small for the load,
the queue grows and the size with it, until the two agree. Deadlines limit it as in `deadline`.

The line and its error bound come from the execution times seen so far; when they drift, old ones
are forgotten (`sidecar.core.exec_time`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.validation.problems import Problems
from sidecar.core.policy import Decision
from sidecar.policies.deadline import Deadline

if TYPE_CHECKING:
    from sidecar.core.policy import Executed, Waiting
    from sidecar.core.request import Request

__all__ = ["Adaptive"]


class Adaptive:
    """Leave when an instance is free, in the size with the least mean completion time."""

    @dataclass(frozen=True, slots=True)
    class Params:
        """Parameters of `Adaptive`.

        Attributes:
            explore: number of batches after which one is sent in another size, if the sizes so far
                are too similar to learn the cost of an item; 0: never.
        """

        explore: int = 16

        def __post_init__(self) -> None:
            """Check the parameters.

            Raises:
                ConfigError: a negative interval.
            """
            problems = Problems()
            if self.explore < 0:
                problems.add("explore", self.explore, "a number of batches, or 0 for never")
            problems.raise_if_any()

    def __init__(self, params: Params) -> None:
        self._params = params
        self._deadline = Deadline(Deadline.Params())
        self._batches = 0

    def depart(self, request: Request) -> float:
        """Return the arrival time, so that the request leaves as soon as an instance is free."""
        return request.arrived

    def decide(self, waiting: Waiting) -> Decision:
        """Return the size with the least mean completion time, if the deadlines allow it."""
        allowed = self._deadline.decide(waiting)
        return Decision(max(1, min(allowed.size, self._best_size(waiting))), allowed.late)

    def observe(self, executed: Executed) -> None:
        """Count the batch; the batcher keeps the execution times."""
        del executed
        self._batches += 1

    def _best_size(self, waiting: Waiting) -> int:
        base, per_item = waiting.exec_time.line()
        if per_item <= 0:  # nothing is known, or all batches had the same size: take all
            explore = self._params.explore
            half = bool(explore) and self._batches % explore == explore - 1
            return -(-waiting.count // 2) if half else waiting.limit
        return round(math.sqrt(waiting.count * base / per_item))
