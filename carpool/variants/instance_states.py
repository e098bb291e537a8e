"""State of an instance of a variant, from its measurements (INFaaS, ATC'21, section 3.2).

    Inactive -loaded-> Active -at its saturation rate-> Overloaded
                       Active -latency above its profile, though not overloaded-> Interfered

An instance returns to Active when that is over. Inactive ones are not measured, and have no state
here. Measurements are noisy, so a state is left at another threshold than it is entered, and only
after several such observations in a row. An instance that gets no requests, because it is never
selected, has no latency: after a longer time it counts as Active again, and the next requests
decide.
"""

from __future__ import annotations

import enum

__all__ = ["InstanceState", "State"]

_OVERLOADED, _RELIEVED = 0.95, 0.8  # shares of the saturation rate: enters, leaves the state
_INTERFERED, _CALM = 1.5, 1.2  # multiples of the profile's latency: enters, leaves the state
_OBSERVATIONS = 2  # in a row that change a state
_REST = 10  # observations in a row without a batch that end an interference


class State(enum.Enum):
    """State of an instance that has loaded; only Active ones get requests."""

    ACTIVE = "active"
    OVERLOADED = "overloaded"
    INTERFERED = "interfered"


class InstanceState:
    """State machine of one instance that has loaded.

    Attributes:
        state: Current state.
    """

    __slots__ = ("_pending", "_seen", "state")

    def __init__(self) -> None:
        self.state = self._pending = State.ACTIVE
        self._seen = 0

    def observe(self, load: float, slowdown: float | None) -> State:
        """Process a measurement and return the resulting state.

        Args:
            load: Rate of completed requests since the last measurement, as a share of the
                saturation rate.
            slowdown: Latency of its batches, as a multiple of that of its profile; None if there
                were none.
        """
        suggested = self._suggested(load, slowdown)
        if suggested is not self._pending:
            self._pending, self._seen = suggested, 0
        self._seen += 1
        resting = self.state is State.INTERFERED and slowdown is None
        if self._seen >= (_REST if resting else _OBSERVATIONS):
            self.state = suggested
        return self.state

    def _suggested(self, load: float, slowdown: float | None) -> State:
        """Return the state that this observation alone suggests, given the current one."""
        now = self.state
        if load >= (_RELIEVED if now is State.OVERLOADED else _OVERLOADED):
            return State.OVERLOADED
        most = _CALM if now is State.INTERFERED else _INTERFERED
        if slowdown is None or slowdown <= most:
            return State.ACTIVE
        # A backlog takes a while to work off, and is slow for that alone.
        return State.OVERLOADED if now is State.OVERLOADED else State.INTERFERED
