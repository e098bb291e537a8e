"""The result of one round of planning. `Guard` makes it, of what a scaling policy proposes."""

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
        plans: By function. A function without one keeps the plan that it has.
        unplaced: Requests per second for which there was no room, or no size that meets the
            objective, by function; those without any are left out.
    """

    plans: Mapping[str, Plan]
    unplaced: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FunctionResult:
    """Results of a round for one function: its plan, or why it keeps the one that it has.

    Attributes:
        plan: What should run; None: what should run already.
        notes: Why it is not what the policy wanted.
        failure: What its policy did wrong; empty if nothing.
        unplaced_rps: The part of its rate for which there is no room.
    """

    plan: Plan | None = None
    notes: list[str] = field(default_factory=list)
    failure: str = ""
    unplaced_rps: float = 0.0


class SupportsPlan(Protocol):
    """What makes plans of a snapshot, as `Guard` does; the caller carries them out."""

    def plan(self, snapshot: Snapshot) -> PlanningResult:
        """One round."""
