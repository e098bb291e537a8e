"""Remember the rate of bursts, so that the next burst is known at its start.

Many loads jump between two levels. Right after a jump only few requests have been counted, and
later counts fluctuate; instances that are started for a chance maximum are kept for a minute. While
a count is within chance of the rate that bursts have had, that rate is the better estimate.

A burst begins with a jump, and ends when its rate falls beyond chance. Its rate is known once a
whole counting period lies inside it. A burst of another rate replaces what is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Plateau"]

_CHANCE = 3.0  # standard deviations that chance explains
_SOONEST_S = 0.5  # shortest period over which a rate is counted
_REMEMBERED_S = 180.0


@dataclass(slots=True)
class Plateau:
    """The rate of one function's bursts.

    Attributes:
        counted_s: Period over which rates are usually counted.
        rate_rps: The rate.
        over_s: How long it was observed; 0 if it is unknown.
        began_s: When the present burst began; infinity if there is none.
        settled: Whether the present burst has had this rate.
    """

    counted_s: float
    rate_rps: float = 0.0
    over_s: float = 0.0
    began_s: float = math.inf
    settled: bool = False

    def update(self, measured_rps: float, passed_s: float, now_s: float, *, jumped: bool) -> None:
        """Learn from a rate that was measured ``passed_s`` after the last one."""
        if now_s < self.began_s:
            if jumped:
                self.began_s, self.settled = now_s, False
        elif now_s < self.began_s + self.counted_s:
            return
        elif self._alike(measured_rps, self.counted_s):
            self.over_s = min(self.over_s + passed_s, _REMEMBERED_S)
            self.rate_rps += passed_s / self.over_s * (measured_rps - self.rate_rps)
            self.settled = True
        elif self.settled and measured_rps < self.rate_rps:
            self.began_s = math.inf
        else:
            self.rate_rps, self.over_s, self.settled = measured_rps, self.counted_s, True

    def likely(self, rate_rps: float, now_s: float) -> float:
        """Return the known rate of bursts if ``rate_rps`` is within chance of it, else that."""
        if now_s < self.began_s:
            return rate_rps
        since_s = min(max(now_s - self.began_s, _SOONEST_S), self.counted_s)
        return self.rate_rps if self._alike(rate_rps, since_s) else rate_rps

    def _alike(self, rate_rps: float, counted_s: float) -> bool:
        """Return whether a rate that was counted over some time may be the known one."""
        if not self.over_s:
            return False
        variance = max(rate_rps, self.rate_rps) * (1 / counted_s + 1 / self.over_s)
        return abs(rate_rps - self.rate_rps) <= _CHANCE * math.sqrt(variance)
