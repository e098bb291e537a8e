"""The contract of a scaling policy: from a snapshot to plans.

Writing one: a class with a frozen dataclass ``Params``, constructed with it, and the method of
`ScalePolicy`. A policy may keep what it learned from earlier snapshots; given the same snapshots in
the same order it makes the same plans. It never acts: whoever asked carries the plans out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.plan import Plan
    from scaler.core.snapshot import Snapshot

__all__ = ["Planning", "ScalePolicy"]


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


class ScalePolicy(Protocol):
    """Decides which instances of which size should run."""

    def plan(self, snapshot: Snapshot) -> Planning:
        """One round."""
