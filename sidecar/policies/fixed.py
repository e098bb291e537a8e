"""A fixed size and window: leave when full, or when the oldest has waited long enough.

What most servers call dynamic batching. The window counts from each request's arrival, so the
oldest decides: ``min(a_i) + T`` in the notation of BATCH (SC'20, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.strict import Problems
from sidecar.core.policy import Decision

if TYPE_CHECKING:
    from sidecar.core.policy import Executed, Waiting
    from sidecar.core.request import Request

__all__ = ["FixedWindow"]


class FixedWindow:
    """Leave with ``size`` requests, or when one has waited ``wait_s``."""

    @dataclass(frozen=True, slots=True)
    class Params:
        """Parameters of `FixedWindow`.

        Attributes:
            size: requests in a full batch (B); 0: as many as the settings allow.
            wait_s: longest wait of a request in seconds (T).
        """

        size: int = 0
        wait_s: float = 0.01

        def __post_init__(self) -> None:
            """Refuse what can never work.

            Raises:
                ConfigError: a negative size or wait.
            """
            problems = Problems()
            if self.size < 0:
                problems.add("size", self.size, "at least 1, or 0 for as many as allowed")
            if not 0 <= self.wait_s < float("inf"):
                problems.add("wait_s", self.wait_s, "seconds, at least 0")
            problems.raise_if_any()

    def __init__(self, params: Params) -> None:
        self._params = params

    def depart(self, request: Request) -> float:
        """When the window of this request closes."""
        return request.arrived + self._params.wait_s

    def decide(self, waiting: Waiting) -> Decision:
        """The fixed size."""
        return Decision(self._params.size or waiting.limit)

    def observe(self, executed: Executed) -> None:
        """Nothing to learn."""
