"""How often sidecars sync: often while there are few, as rarely as needed if there are many.

The scaler's time per message is measured, so the interval adapts to the machine.
"""

from __future__ import annotations

__all__ = ["FEWEST", "FOLLOWED_S", "LEAST_PAUSE_S", "SOON_S", "Pace"]

SOON_S = 0.1  # interval of messages while news is expected
FOLLOWED_S = 1.0  # time after a jump until its rate is measured (0.5 s) and reported
LEAST_PAUSE_S = 0.05  # shortest pause between rounds; at least as long as a round took
_SHARE = 0.5  # part of a core that messages may use
_WEIGHT = 0.2
FEWEST = 200  # least number of messages for a measurement
_FIRST_COST_S = 200e-6
_MOST_S = 60.0  # longest interval between messages of a sidecar


class Pace:
    """Determines the sync interval of sidecars.

    Args:
        least_s: Shortest interval.
    """

    def __init__(self, least_s: float = 0.5) -> None:
        self._least_s = least_s
        self._cost_s = _FIRST_COST_S

    def measured(self, messages: int, busy_s: float) -> None:
        """Record the process time taken by a number of messages, planning included."""
        if messages >= FEWEST:
            self._cost_s += _WEIGHT * (busy_s / messages - self._cost_s)

    def soonest_s(self, fronts: int) -> float:
        """Return the least seconds between urgent messages of a front, to use at most one core."""
        return min(round(fronts * self._cost_s, 3), self.interval_s(fronts))

    def interval_s(self, sidecars: int) -> float:
        """Return the seconds between messages of a sidecar."""
        needed_s = sidecars * self._cost_s / _SHARE
        return min(max(self._least_s, round(needed_s, 2)), _MOST_S)
