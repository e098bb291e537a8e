"""Runs a policy at the command line and reports its errors under its name.

The guard keeps everything running whatever a policy does, here as well. But where nothing runs yet
there is no plan to keep, and users who try a policy need to see what is wrong with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Problem
from scaler.control.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.scaling import ScalePolicy
    from scaler.control.planning_result import PlanningResult
    from scaler.planning.snapshot import Snapshot

__all__ = ["ReportingGuard"]


class ReportingGuard:
    """A guard that names the policy behind it when it fails.

    Args:
        name: The user's name for the policy.
        policy: Any policy.
    """

    def __init__(self, name: str, policy: ScalePolicy) -> None:
        self._name = name
        self._guard = Guard(policy)
        self._failed: dict[str, list[str]] = {}

    def plan(self, snapshot: Snapshot) -> PlanningResult:
        """As `SupportsPlan.plan`.

        Raises:
            ConfigError: The policy has failed for a function that has no plan to keep.
        """
        planning = self._guard.plan(snapshot)
        kept = {each.name for each in snapshot.functions if each.plan is not None}
        for function, fault in planning.failures.items():
            if function not in kept:
                expected = "a policy that raises no errors and makes valid proposals"
                hint = f"propose() for {function}: {fault}"
                raise ConfigError([Problem("--policy", self._name, expected, hint)])
            self._failed.setdefault(function, []).append(fault)
        return planning

    def complaints(self) -> Iterator[str]:
        """Yield a sentence for each function whose plan was kept because the policy failed."""
        for function, faults in self._failed.items():
            yield (
                f"{self._name} failed for {function} in {len(faults)} rounds, in which its plan "
                f"stayed as it was: {faults[0]}"
            )
