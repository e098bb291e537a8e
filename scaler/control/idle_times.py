"""Idle times of a function: reported by its fronts, learned by its prewarm policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from carpool import log_histogram
from scaler.control.policy_errors import PolicyFailed, raised

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler.prewarm.contract import PrewarmPolicy, Windows

__all__ = ["IdleTimeTracker"]

_OBSERVED = 64  # of one bin in one report: more of the same say nothing new


class IdleTimeTracker:
    """Passes idle times of one function to its prewarm policy.

    Args:
        policy: The function's own policy; None if the function follows its plans alone.
    """

    def __init__(self, policy: PrewarmPolicy | None) -> None:
        self._policy = policy

    def reported(self, idle: Mapping[int, int], beside_s: float | None, wall_s: float) -> None:
        """Record the idle times of a front.

        Args:
            idle: Counts by bin.
            beside_s: Seconds that the function's other fronts have been idle; None if they are not.
            wall_s: Seconds since the epoch.
        """
        if self._policy is None or beside_s is None:
            return
        for number, count in idle.items():
            idle_s = min(
                log_histogram.middle_s(number), beside_s
            )  # all of its fronts were idle together
            for _ in range(min(count, _OBSERVED)):
                self._policy.observe(idle_s, wall_s)

    def windows(self, wall_s: float) -> Windows | None:
        """Return when the last instance should be there; None if the plan decides.

        Raises:
            PolicyFailed: The prewarm policy has failed.
        """
        try:
            return self._policy.windows(wall_s) if self._policy else None
        except Exception as error:
            message = f"the prewarm policy has failed: {raised(error)}"
            raise PolicyFailed(message) from error

    def to_dict(self) -> dict[str, Any] | None:
        """Return what was learned; None without a policy."""
        return dict(self._policy.to_dict()) if self._policy else None

    def absorb(self, data: dict[str, Any] | None) -> None:
        """Continue from the result of `to_dict`.

        Raises:
            ConfigError: A policy with these parameters has not learned this.
        """
        if self._policy is not None and data is not None:
            self._policy.absorb(data)
