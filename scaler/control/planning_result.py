"""The result of one round of planning, made by `Guard` from the proposals of a scaling policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.plan import Plan
    from scaler.planning.snapshot import Snapshot

__all__ = ["FunctionResult", "PlanningResult", "SupportsPlan"]


@dataclass(frozen=True, slots=True)
class PlanningResult:
    """The outcome of one round.

    Attributes:
        plans: Plans by function. A function without one keeps its current plan.
        unplaced: Requests per second for which there was no room, or no size that meets the
            objective, by function; functions without any are left out.
        reasons: Why the policy proposes no instance at all for functions with an unplaced rate,
            where this is not because of missing capacity.
    """

    plans: Mapping[str, Plan]
    unplaced: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FunctionResult:
    """Result of a round for one function: its plan, or why it keeps the current one.

    Attributes:
        plan: The new plan; None if the current one stays.
        notes: Why the plan differs from what the policy wanted.
        failure: Error of its policy; empty if there is none.
        unplaced_rps: The part of its rate for which there is no room.
    """

    plan: Plan | None = None
    notes: list[str] = field(default_factory=list)
    failure: str = ""
    unplaced_rps: float = 0.0


class SupportsPlan(Protocol):
    """An object that makes plans of a snapshot, as `Guard` does; the caller carries them out."""

    def plan(self, snapshot: Snapshot) -> PlanningResult:
        """Plan one round."""
