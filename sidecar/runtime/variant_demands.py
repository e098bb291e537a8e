"""Demands of arriving requests: completed from their paths, or refused with a reason.

The core chooses the variant (`sidecar.core.variant_routing`); this module handles variants named in
paths, and the errors if none can serve a request.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from carpool import durations
from carpool.errors import NotFound, Overloaded, Unfit
from carpool.validation.problems import nearest
from carpool.variants.demand import VariantDemand
from sidecar.runtime.variant_headers import stricter

if TYPE_CHECKING:
    from carpool.errors import CarpoolError
    from carpool.plan import OnOffer
    from carpool.variants.selection import Profile
    from sidecar.core.request import Request
    from sidecar.core.variant_routing import VariantRouter
    from sidecar.runtime.upstreams import FunctionUpstreams

__all__ = ["reason_unfit", "settle_demand"]

_ONLY_VERSION = "1"  # the version of a model that has no variants
_RETRY_S = 1.0


def settle_demand(request: Request, upstreams: FunctionUpstreams, *, planned: bool) -> None:
    """Settle the demand of ``request``, and the application under which it is counted.

    Args:
        request: As it was read.
        upstreams: Has the variant router.
        planned: Whether there is, or will be, a plan.

    Raises:
        CarpoolError: an unknown variant, or a demand although there are no variants.
    """
    variant_router, demand = upstreams.variant_router, request.demand
    if variant_router is None:
        if demand is not None:
            _refuse_demand(demand, waits=planned and upstreams.plan is None)
            request.demand = None  # a latency alone only sets the deadline
        return
    known = variant_router.variants
    model, version = request.payload.template.names
    named = version if version in known else model if model in known and not version else ""
    if version not in ("", _ONLY_VERSION) and not named:
        raise _unknown(version, list(known))
    if named and demand is None:
        demand = (request.payload.template.app_demand or VariantDemand())._replace(variant=named)
    elif named:
        demand = stricter(demand, VariantDemand(variant=named))
    if demand is not None:
        if demand.variant and demand.variant not in known:
            raise _unknown(demand.variant, list(known))
        request.demand = demand
        request.app = request.counted_as = variant_router.label(demand)


def reason_unfit(demand: VariantDemand, variant_router: VariantRouter) -> CarpoolError | None:
    """Return the error if no variant can serve a request with ``demand`` now; else None."""
    if demand.variant:
        return _reason_unavailable(demand, variant_router)
    if variant_router.best_fit(demand):
        return None
    requirements = _asked(demand)
    late = variant_router.would_fit(demand)
    if late is not None:
        msg = (
            f"no running variant answers {requirements}; {_figures(late)} would, but it takes "
            f"{late.load_s:.2g} s to load, or is overloaded"
        )
        return Overloaded(msg, max(late.load_s, _RETRY_S))
    closest = variant_router.closest(demand)
    but = f"; the closest is {_figures(closest)}" if closest else ""
    return Unfit(f"no variant answers {requirements}{but}")


def _reason_unavailable(
    demand: VariantDemand, variant_router: VariantRouter
) -> CarpoolError | None:
    """Return why the variant named in ``demand`` cannot serve it; None if it can."""
    named = variant_router.offer(demand.variant)
    if named.accuracy < demand.accuracy:
        return Unfit(f"{_figures(named)} was named, but {_asked(demand)} was required")
    if (
        variant_router.is_running(demand.variant)
        or named.load_s + named.latency_s <= demand.latency_s
    ):
        return None
    msg = f"no instance of {demand.variant} runs now; one is loaded in {named.load_s:.2g} s"
    return Overloaded(msg, max(named.load_s, _RETRY_S))


def _refuse_demand(demand: VariantDemand, *, waits: bool) -> None:
    if waits:
        msg = "there is no plan with variants yet"
        raise Overloaded(msg, _RETRY_S)
    if demand.accuracy or demand.cost < math.inf or demand.variant:
        msg = (
            "this function has no variants to choose from, so requests cannot choose "
            "accuracy, cost or variant: leave these out, or scale the function by the policy "
            "infaas, with variants"
        )
        raise Unfit(msg)


def _unknown(name: str, known: list[str]) -> NotFound:
    hint = nearest(name, known)
    there = hint or f"there are {', '.join(known[:8])}{', ...' if len(known) > 8 else ''}"  # noqa: PLR2004
    return NotFound(f"variant {name[:80]!r} is not known; {there}")


def _asked(demand: VariantDemand) -> str:
    parts = []
    if demand.latency_s < math.inf:
        parts.append(f"within {durations.format(round(demand.latency_s, 9))}")
    if demand.accuracy:
        parts.append(f"at an accuracy of {demand.accuracy:.4g} or more")
    if demand.cost < math.inf:
        parts.append(f"for {demand.cost:.4g} or less")
    return " ".join(parts) or "that"


def _figures(variant: Profile | OnOffer) -> str:
    return (
        f"{variant.name} (accuracy {variant.accuracy:.4g}, answers within "
        f"{variant.latency_s * 1000:.3g} ms, costs {variant.cost:.3g})"
    )
