"""State of an instance of a variant, from its measurements (INFaaS, ATC'21, section 3.2).

    Inactive -loaded-> Active -at its saturation rate-> Overloaded
                       Active -latency above its profile, though not overloaded-> Interfered

An instance returns to Active when that is over; unloading leads to Inactive from any state.
Measurements are noisy, so a state is left at another threshold than it is entered, and only after
several such observations in a row. An instance that gets no requests, because it is never selected,
has no latency: after a longer time it counts as Active again, and the next requests decide.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["InstanceState", "State", "Thresholds", "mitigation"]


class State(enum.Enum):
    """State of an instance; only Active ones get requests."""

    INACTIVE = "inactive"
    ACTIVE = "active"
    OVERLOADED = "overloaded"
    INTERFERED = "interfered"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds for entering and leaving states.

    Attributes:
        overloaded: Share of the saturation rate from which an instance is overloaded.
        relieved: Share of the saturation rate below which it no longer is.
        interfered: Ratio to its profile's latency above which an instance is interfered with.
        calm: Ratio to its profile's latency at which it no longer is.
        observations: Number of observations in a row that change a state.
        rest: Number of observations in a row without a batch after which an interfered instance is
            tried again.

    Raises:
        ValueError: a state would be left before it is entered.
    """

    overloaded: float = 0.95
    relieved: float = 0.8
    interfered: float = 1.5
    calm: float = 1.2
    observations: int = 2
    rest: int = 10

    def __post_init__(self) -> None:
        """Refuse thresholds under which states would not be stable."""
        ordered = 0 < self.relieved <= self.overloaded and 0 < self.calm <= self.interfered
        if not ordered or self.observations < 1 or self.rest < 1:
            message = f"{self}: expected relieved <= overloaded, calm <= interfered, all above 0"
            raise ValueError(message)


class InstanceState:
    """State machine of one instance.

    Args:
        saturation_rps: Maximum number of requests per second, by its profile.
        latency_s: Latency in seconds, by its profile.
        thresholds: Thresholds for entering and leaving states.

    Attributes:
        state: Current state.
    """

    __slots__ = ("_latency_s", "_pending", "_saturation_rps", "_seen", "_thresholds", "state")

    def __init__(
        self, saturation_rps: float, latency_s: float, thresholds: Thresholds | None = None
    ) -> None:
        self._saturation_rps = saturation_rps
        self._latency_s = latency_s
        self._thresholds = thresholds or Thresholds()
        self.state = self._pending = State.INACTIVE
        self._seen = 0

    def loaded(self) -> None:
        """Record that the instance has loaded."""
        self._enter(State.ACTIVE)

    def observe(self, rate_rps: float, latency_s: float | None) -> State:
        """Process a measurement and return the resulting state.

        Args:
            rate_rps: Completed requests per second since the last measurement.
            latency_s: Latency of its batches, or time so far of the oldest of them; None if there
                were none.
        """
        if self.state is State.INACTIVE:
            return self.state
        suggested = self._suggested(rate_rps, latency_s)
        if suggested is not self._pending:
            self._pending, self._seen = suggested, 0
        self._seen += 1
        resting = self.state is State.INTERFERED and latency_s is None
        if self._seen >= (self._thresholds.rest if resting else self._thresholds.observations):
            self.state = suggested
        return self.state

    def _suggested(self, rate_rps: float, latency_s: float | None) -> State:
        """Return the state that this observation alone suggests, given the current one."""
        limits, now = self._thresholds, self.state
        share = limits.relieved if now is State.OVERLOADED else limits.overloaded
        if rate_rps >= share * self._saturation_rps:
            return State.OVERLOADED
        times = limits.calm if now is State.INTERFERED else limits.interfered
        slow = latency_s is not None and latency_s > times * self._latency_s
        # A backlog takes a while to work off, and is slow for that alone.
        if slow and now is State.OVERLOADED and math.isfinite(self._latency_s):
            return State.OVERLOADED
        return State.INTERFERED if slow else State.ACTIVE

    def _enter(self, state: State) -> None:
        self.state = self._pending = state
        self._seen = 0


def mitigation(instances: Mapping[str, State]) -> dict[str, Literal["move", "place"]]:
    """Return the action for each interfered instance of one variant.

    ``move`` if another instance is Active and takes its load, else ``place`` to request an instance
    elsewhere.
    """
    spare = State.ACTIVE in instances.values()
    return {
        name: "move" if spare else "place"
        for name, state in instances.items()
        if state is State.INTERFERED
    }
