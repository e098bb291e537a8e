"""Keep instances for the next jump of a load while more is missed than the objective permits.

A load that has jumped may jump again, and only instances that are ready by then respond in time. A
percentile permits some misses. While more were missed in about the last hour, instances are kept
for a part of the rate at which requests were last missed; then they are released. So rare jumps
cost nothing, and frequent ones no more idle instances than the percentile requires.

Policies are not told what was missed. Requests beyond what the ready instances execute in full
batches count as missed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.plain_number import plain

if TYPE_CHECKING:
    from carpool.scaling import FunctionLoad

__all__ = ["ErrorBudget"]

_REMEMBERED_S = 3600.0
_SAME_JUMP_S = 60.0  # the longest pause between misses of one jump


@dataclass(slots=True)
class ErrorBudget:
    """The misses of one function, and the rates at which they occurred.

    Attributes:
        at_s: Time of the last update; infinity before the first.
        requests, missed: Numbers of requests, forgotten over an hour.
        missed_s: Time of the last miss.
        peak_rps: The highest rate at which requests were missed in the last jump.
    """

    at_s: float = math.inf
    requests: float = 0.0
    missed: float = 0.0
    missed_s: float = -math.inf
    peak_rps: float = 0.0

    def kept_rps(self, load: FunctionLoad, repay: float) -> float:
        """Count the requests since the last call, and return the rate to keep instances for.

        Args:
            load: The load now.
            repay: The part of the last jump's rate for which instances are kept.
        """
        self._count(load)
        overspent = self.missed > (1 - load.percentile) * self.requests
        recent = load.now_s < self.missed_s + _REMEMBERED_S
        return repay * self.peak_rps if overspent and recent else 0.0

    def said(self, kept_rps: float) -> str:
        """Return why instances are kept."""
        share = self.missed / self.requests
        return (
            f"Instances for {plain(kept_rps, 3)}/s are kept for the next jump of the load, because "
            f"about {plain(100 * share, 2)} % of recent requests arrived faster than instances "
            "could serve them, more than the percentile permits."
        )

    def _count(self, load: FunctionLoad) -> None:
        now_s, rate_rps = load.now_s, load.rate_rps
        passed_s = max(now_s - self.at_s, 0.0)
        self.at_s = now_s
        excess_rps = max(rate_rps - _executed_rps(load), 0.0)
        if excess_rps > 0:
            same = now_s <= self.missed_s + _SAME_JUMP_S
            self.peak_rps = max(self.peak_rps, rate_rps) if same else rate_rps
            self.missed_s = now_s
        left = math.exp(-passed_s / _REMEMBERED_S)
        self.requests = left * self.requests + passed_s * rate_rps
        self.missed = left * self.missed + passed_s * excess_rps


def _executed_rps(load: FunctionLoad) -> float:
    """Return what the ready instances execute in full batches; infinity if that is unknown."""
    return sum(
        [
            one.ready * size.batch / size.exec_s if size.exec_s > 0 else math.inf
            for size, one in load.running.items()
        ]
    )
