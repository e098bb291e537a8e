"""The result of one round of planning, made by `Guard` from the proposals of a scaling policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.plan import Plan
    from scaler.planning.snapshot import Snapshot

__all__ = ["FunctionResult", "PlanningResult", "SupportsPlan"]


@dataclass(frozen=True, slots=True)
class PlanningResult:
    """The outcome of one round.

    Attributes:
        plans: Plans by function. A function without one keeps its current plan.
        unplaced: Requests per second for which there was no capacity, or no size that meets the
            objective, by function; functions without any are left out.
        reasons: Why the policy proposes no instance at all for functions with an unplaced rate,
            where this is not because of missing capacity.
        notes: Why functions keep their plan, or get another than the policy wants, by function.
        failures: Errors of the policy, by function that it gave no plan.
    """

    plans: Mapping[str, Plan]
    unplaced: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    def of(self, name: str) -> FunctionResult:
        """Return the result for one function."""
        return FunctionResult(
            self.plans.get(name),
            list(self.notes.get(name, ())),
            self.failures.get(name, ""),
            self.unplaced.get(name, 0.0),
        )


@dataclass(frozen=True, slots=True)
class FunctionResult:
    """Result of a round for one function: its plan, or why it keeps the current one.

    Attributes:
        plan: The new plan; None if the current one stays.
        notes: Why the plan differs from what the policy wanted.
        failure: Error of its policy; empty if there is none.
        unplaced_rps: The part of its rate for which there is no capacity.
    """

    plan: Plan | None = None
    notes: list[str] = field(default_factory=list)
    failure: str = ""
    unplaced_rps: float = 0.0


class SupportsPlan(Protocol):
    """An object that makes plans of a snapshot, as `Guard` does; the caller carries them out."""

    def plan(self, snapshot: Snapshot) -> PlanningResult:
        """Plan one round."""
