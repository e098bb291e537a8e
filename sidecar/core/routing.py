"""Routes a request to the instances that may take it, according to the current plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidecar.core.dispatch import ANYWHERE, Route

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.core.request import Request
    from sidecar.core.variant_routing import VariantRouter

__all__ = ["Routing"]

_NOWHERE = Route({})


@dataclass(slots=True)
class Routing:
    """The routes of one plan.

    Attributes:
        routes: by application; ``*`` is every application without its own. Applications without any
            can use every instance.
        version: version of the plan; None without a plan.
        variant_router: chooses for requests with a demand; None if the plan has no variants.
    """

    routes: Mapping[str, Route]
    version: int | None
    variant_router: VariantRouter | None

    def route(self, request: Request) -> Route:
        """Return the route of ``request``."""
        if request.demand is not None:
            chosen = self.variant_router.route(request.demand) if self.variant_router else None
            # If no variant fits any more, it keeps its route, as it did not ask for less.
            return chosen or (_NOWHERE if request.route is ANYWHERE else request.route)
        routes = self.routes
        return routes.get(request.app) or routes.get("*", ANYWHERE) if routes else ANYWHERE
