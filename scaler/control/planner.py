"""What comes of a round of planning, and who makes it: the guard, in front of a policy.

What a scaling policy is, and proposes, is in `carpool.scaling`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.plan import Plan
    from scaler.planning.snapshot import Snapshot

__all__ = ["Planner", "Planning"]


@dataclass(frozen=True, slots=True)
class Planning:
    """The outcome of one round.

    Attributes:
        plans: By function. A function without one keeps the plan that it has.
        unplaced: Requests per second for which there was no room, or no size that meets the
            objective, by function; those without any are left out.
    """

    plans: Mapping[str, Plan]
    unplaced: Mapping[str, float] = field(default_factory=dict)


class Planner(Protocol):
    """Makes plans of snapshots; it never acts: the caller carries them out."""

    def plan(self, snapshot: Snapshot) -> Planning:
        """One round."""
