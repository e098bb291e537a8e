"""How an instance of a variant is, from what is measured of it (INFaaS, ATC'21, section 3.2).

    Inactive -loaded-> Active -at its saturation rate-> Overloaded
                       Active -latency above its profile, though not overloaded-> Interfered

and back to Active when that is over; unloading leads to Inactive from anywhere. Measurements are
noisy, so a state is left at another threshold than it is entered, and only when several
observations in a row say so. An instance that gets no requests, as nobody selects it, has no
latency: after a longer while it counts as Active again, and the next requests will tell.
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
    """Of an instance; requests go to Active ones alone."""

    INACTIVE = "inactive"
    ACTIVE = "active"
    OVERLOADED = "overloaded"
    INTERFERED = "interfered"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When states are entered and left.

    Attributes:
        overloaded: Part of the saturation rate from which an instance is overloaded.
        relieved: Part of it below which it is not any more.
        interfered: Times its profile's latency above which it is interfered with.
        calm: Times of it at which it is not any more.
        observations: So many in a row must say so.
        rest: So many in a row without a batch, and an interfered one is tried again.

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
        """Refuse states that no instance could rest in."""
        ordered = 0 < self.relieved <= self.overloaded and 0 < self.calm <= self.interfered
        if not ordered or self.observations < 1 or self.rest < 1:
            message = f"{self}: expected relieved <= overloaded, calm <= interfered, all above 0"
            raise ValueError(message)


class InstanceState:
    """One instance.

    Args:
        saturation_rps: Requests per second that it can answer, by its profile.
        latency_s: Seconds that it takes, by its profile.
        thresholds: When states are entered and left.

    Attributes:
        state: How it is.
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
        """It has loaded."""
        self._enter(State.ACTIVE)

    def unloaded(self) -> None:
        """It has gone."""
        self._enter(State.INACTIVE)

    def observe(self, rate_rps: float, latency_s: float | None) -> State:
        """What was measured since the last time; its state then.

        Args:
            rate_rps: Requests that it answered per second.
            latency_s: How long its batches took, or the oldest of them has been taking; None: it
                had none.
        """
        if self.state is State.INACTIVE:
            return self.state
        said = self._said(rate_rps, latency_s)
        if said is not self._pending:
            self._pending, self._seen = said, 0
        self._seen += 1
        resting = self.state is State.INTERFERED and latency_s is None
        if self._seen >= (self._thresholds.rest if resting else self._thresholds.observations):
            self.state = said
        return self.state

    def _said(self, rate_rps: float, latency_s: float | None) -> State:
        """What this observation alone says, seen from the state it is in."""
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
    """What to do about each interfered instance of one variant.

    ``move``: another is Active and takes its load. ``place``: none is, so one is asked for
    elsewhere.
    """
    spare = State.ACTIVE in instances.values()
    return {
        name: "move" if spare else "place"
        for name, state in instances.items()
        if state is State.INTERFERED
    }
