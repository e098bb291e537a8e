"""The batch policy of a plan: full batches of each instance's planned size, and a longest wait.

The wait belongs to the application, so a batch leaves at the earliest departure time in it:
``min(a_i + T_i)`` (HarmonyBatch, IWQoS'24, section III). The policy is in force while there is a
plan, and cannot be chosen by name. The routes of a plan are translated here too, so that sidecar
and simulator interpret it alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidecar.core.dispatch import Route
from sidecar.core.policy import Decision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.plan import Plan
    from sidecar.core.policy import Executed, Waiting
    from sidecar.core.request import Request

__all__ = ["Planned", "policy_of", "routes_of"]


class Planned:
    """Leave full, or when a request has waited as long as its application allows."""

    @dataclass(frozen=True, slots=True)
    class Params:
        """Parameters of `Planned`.

        Attributes:
            max_wait_s: longest wait in seconds by application; ``*`` is every other application.
        """

        max_wait_s: Mapping[str, float]

    def __init__(self, params: Params) -> None:
        self._max_wait_s = params.max_wait_s
        self._others_s = params.max_wait_s.get("*", 0.0)

    def depart(self, request: Request) -> float:
        """Return when the longest wait of the request's application is over."""
        return request.arrived + self._max_wait_s.get(request.app, self._others_s)

    def decide(self, waiting: Waiting) -> Decision:
        """Return the size of a full batch of the instance."""
        return Decision(waiting.limit)

    def observe(self, executed: Executed) -> None:
        """Do nothing; the scaler learns instead."""


def policy_of(plan: Plan) -> Planned:
    """Return the batch policy of ``plan``."""
    return Planned(Planned.Params({route.app: route.max_wait_s for route in plan.routes}))


def routes_of(plan: Plan) -> dict[str, Route]:
    """Return a route for each application; equal shares give one route, so they share batches."""
    shared: dict[tuple[tuple[str, float], ...], Route] = {}
    return {
        route.app: shared.setdefault(tuple(sorted(route.weights.items())), Route(route.weights))
        for route in plan.routes
    }
