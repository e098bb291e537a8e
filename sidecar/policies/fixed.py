"""A fixed size and window: leave when full, or when the oldest request has waited long enough.

Most servers call this dynamic batching. The window counts from each request's arrival, so the
oldest decides: ``min(a_i) + T`` in the notation of BATCH (SC'20, section 3). With several sizes
the largest that can be filled leaves, as with Triton's preferred batch sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.validation.problems import Problems
from sidecar.core.policy import Decision
from sidecar.policies.knobs import KNOBS

if TYPE_CHECKING:
    from sidecar.core.policy import Executed, Waiting
    from sidecar.core.request import Request

__all__ = ["FixedWindow"]


class FixedWindow:
    """Leave with ``size`` requests, or when one has waited ``wait_s``.

    Attributes:
        knobs: other servers' names for its parameters.
        largest: largest batch that it sends; 0: as many as the settings allow.
    """

    knobs = KNOBS

    @dataclass(frozen=True, slots=True)
    class Params:
        """Parameters of `FixedWindow`.

        Attributes:
            size: requests in a full batch (B), or a list of sizes that leave at once; 0: the
                largest that the settings allow.
            wait_s: longest wait of a request in seconds (T).
        """

        size: int | list[int] = 0
        wait_s: float = 0.01

        def __post_init__(self) -> None:
            """Check the parameters.

            Raises:
                ConfigError: a negative size or wait.
            """
            problems = Problems()
            sizes = self.size if isinstance(self.size, list) else [self.size or 1]
            if not sizes or min(sizes) < 1:
                expected = "at least 1 each, or 0 for as many as allowed"
                problems.add("size", self.size, expected)
            if not 0 <= self.wait_s < float("inf"):
                problems.add("wait_s", self.wait_s, "seconds, at least 0")
            problems.raise_if_any()

    def __init__(self, params: Params) -> None:
        sizes = params.size if isinstance(params.size, list) else [params.size]
        *self._smaller, self.largest = sorted(set(sizes))
        self._wait_s = params.wait_s

    def depart(self, request: Request) -> float:
        """Return when the window of this request closes."""
        return request.arrived + self._wait_s

    def decide(self, waiting: Waiting) -> Decision:
        """Return the largest size that can be filled; the largest of all once a window closed."""
        size = min(self.largest or waiting.limit, waiting.limit)
        filled = [smaller for smaller in self._smaller if smaller <= waiting.count < size]
        if filled and self.depart(waiting.first(1)[0]) > waiting.now:
            return Decision(filled[-1])
        return Decision(size)

    def observe(self, executed: Executed) -> None:
        """Do nothing; there is nothing to learn."""
