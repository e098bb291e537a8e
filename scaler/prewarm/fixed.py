"""A fixed keep-alive: what most platforms do, and hard to beat if its time is chosen well."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from carpool.validation import rules
from carpool.validation.problems import Problems
from scaler.prewarm.contract import Windows

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FixedKeepAlive"]

_SCHEMA = rules.record({}, required=frozenset())


class FixedKeepAlive:
    """Keeps an idle instance for a fixed time."""

    @dataclass(frozen=True, slots=True)
    class Params:
        """Parameters of `FixedKeepAlive`.

        Attributes:
            keep_alive_s: seconds an instance stays after an execution; null: forever.
        """

        keep_alive_s: float | None = 600.0

        def __post_init__(self) -> None:
            """Validate the parameters.

            Raises:
                ConfigError: The time is negative or not finite.
            """
            problems = Problems()
            if self.keep_alive_s is not None and not 0 <= self.keep_alive_s < math.inf:
                problems.add("keep_alive_s", self.keep_alive_s, "seconds, at least 0, or null")
            problems.raise_if_any()

    def __init__(self, params: Params) -> None:
        self._windows = Windows(0.0, params.keep_alive_s)

    def observe(self, idle_s: float, now_s: float) -> None:
        """Ignore the idle time, as there is nothing to learn."""

    def windows(self, now_s: float) -> Windows:
        """Return the fixed windows."""
        del now_s
        return self._windows

    def to_dict(self) -> dict[str, Any]:
        """Return an empty dictionary."""
        return {}

    def absorb(self, data: Mapping[str, Any]) -> None:
        """Check the data, which must be empty; see `PrewarmPolicy.absorb`."""
        rules.checked(_SCHEMA, data)
