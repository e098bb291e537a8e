"""A policy at the command line: what it does wrong is told as its own fault.

The guard keeps everything running whatever a policy does, and so it does here. But where nothing
runs yet there is nothing to keep, and trying a policy is to show what is wrong with it.
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
        name: What the user calls it.
        policy: Of any origin.
    """

    def __init__(self, name: str, policy: ScalePolicy) -> None:
        self._name = name
        self._guard = Guard(policy)
        self._failed: dict[str, list[str]] = {}

    def plan(self, snapshot: Snapshot) -> PlanningResult:
        """As `SupportsPlan.plan`.

        Raises:
            ConfigError: the policy has failed for a function that has no plan to keep.
        """
        planning = self._guard.plan(snapshot)
        kept = {each.name for each in snapshot.functions if each.plan is not None}
        for function, fault in self._guard.failures.items():
            if function not in kept:
                expected = "a policy that raises no errors and makes valid proposals"
                hint = f"propose() for {function}: {fault}"
                raise ConfigError([Problem("--policy", self._name, expected, hint)])
            self._failed.setdefault(function, []).append(fault)
        return planning

    def complaints(self) -> Iterator[str]:
        """What went wrong while the current plan was kept, in a sentence for each function."""
        for function, faults in self._failed.items():
            yield (
                f"{self._name} failed for {function} in {len(faults)} rounds, in which its plan "
                f"stayed as it was: {faults[0]}"
            )
