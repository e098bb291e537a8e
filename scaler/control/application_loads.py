"""The applications of a function with their rates, as a policy sees them.

Requests of no known application form an application of their own, as do requests that state their
demands.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from carpool.scaling import Application
from carpool.variants.demand import VariantDemand

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.settings import FunctionSettings

__all__ = ["NO_OBJECTIVE_S", "app_loads", "demanded"]

NO_OBJECTIVE_S = 1.0
_OTHERS = "(no application)"


def app_loads(
    settings: FunctionSettings, rates_rps: Mapping[str, float]
) -> tuple[Application, ...]:
    """Return all applications of the settings, and others that requests name.

    Args:
        settings: Settings of the function.
        rates_rps: Requests per second by the name that they are counted under.
    """
    slo_s = settings.slo_s or NO_OBJECTIVE_S
    choosing, rates = demanded(rates_rps, slo_s)
    if not settings.apps:
        return (Application("*", slo_s, sum(rates.values())), *choosing)
    apps = tuple(
        Application(app.name, app.slo_s, rates.get(app.name, 0.0), accuracy=app.accuracy or 0.0)
        for app in settings.apps
    )
    known = {app.name for app in apps}
    others_rps = sum(rate_rps for name, rate_rps in rates.items() if name not in known)
    others = Application(_OTHERS, slo_s, others_rps)
    return (*apps, others, *choosing) if others.rate_rps else (*apps, *choosing)


def demanded(
    rates_rps: Mapping[str, float], slo_s: float
) -> tuple[tuple[Application, ...], dict[str, float]]:
    """Return the applications that choose variants, and the rates of all other requests.

    Requests that state their demands on a variant are applications of their own; sidecars count
    them under the names of their demands (`carpool.variants.demand`).

    Args:
        rates_rps: Requests per second, by the name that they are counted under.
        slo_s: Objective of requests that name no latency.
    """
    loads, others = [], {}
    for name, rate_rps in rates_rps.items():
        demand = VariantDemand.parse(name)
        if demand is None:
            others[name] = rate_rps
            continue
        load = Application(
            name,
            demand.latency_s if 0 < demand.latency_s < math.inf else slo_s,
            rate_rps,
            accuracy=demand.accuracy,
            cost=demand.cost,
            variant=demand.variant,
            chooses=True,
        )
        loads.append(load)
    return tuple(loads), others
