"""Passes the idle times that fronts report to the prewarm policy of their function.

A prewarm policy may be any code. If it fails, its function continues without it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

from carpool import log_histogram
from carpool.policy_errors import raised

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scaler.prewarm.contract import PrewarmPolicy, Windows

__all__ = ["IdleTimeTracker"]

_OBSERVED = 64  # idle times of one bin in one report that are passed on; more add no information

T = TypeVar("T")


class IdleTimeTracker:
    """Passes idle times of one function to its prewarm policy.

    Args:
        policy: The function's own policy; None if the function follows its plans alone.
    """

    def __init__(self, policy: PrewarmPolicy | None) -> None:
        self._policy = policy
        self._failures: dict[str, str] = {}

    @property
    def failure(self) -> str:
        """How the prewarm policy fails; empty if it works."""
        return next(iter(self._failures.values()), "")

    def reported(self, idle: Mapping[int, int], beside_s: float | None, wall_s: float) -> None:
        """Record the idle times of a front.

        Args:
            idle: Counts by bin.
            beside_s: Seconds that the function's other fronts have been idle; None if they are not.
            wall_s: Seconds since the epoch.
        """
        policy = self._policy
        if policy is None or beside_s is None:
            return

        def observe() -> None:
            for number, count in idle.items():
                idle_s = min(log_histogram.middle_s(number), beside_s)  # all fronts idle together
                for _ in range(min(count, _OBSERVED)):
                    policy.observe(idle_s, wall_s)

        self._tried("observe", observe)

    def windows(self, wall_s: float) -> Windows | None:
        """Return when the last instance should be there; None if the plan decides."""
        policy = self._policy
        return self._tried("windows", lambda: policy.windows(wall_s)) if policy else None

    def to_dict(self) -> dict[str, Any] | None:
        """Return what was learned; None without a policy, or if it cannot be stored as JSON."""
        policy = self._policy
        return self._tried("to_dict", lambda: _storable(policy.to_dict())) if policy else None

    def absorb(self, data: dict[str, Any] | None) -> None:
        """Continue from the result of `to_dict`.

        Raises:
            ConfigError: A policy with these parameters has not learned this.
        """
        if self._policy is not None and data is not None:
            self._policy.absorb(data)

    def _tried(self, method: str, call: Callable[[], T]) -> T | None:
        """Return the result of the policy's method; None if it fails."""
        try:
            result = call()
        except (Exception, SystemExit) as error:  # noqa: BLE001  a policy may be any code
            self._failures[method] = f"the prewarm policy has failed: {raised(error)}"
            return None
        self._failures.pop(method, None)
        return result


def _storable(data: Mapping[str, Any]) -> dict[str, Any]:
    json.dumps(data)
    return dict(data)
