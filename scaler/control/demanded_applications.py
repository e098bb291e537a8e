"""Treats requests that state their demands on a variant as applications of their own.

Fronts count them under the names of their demands (`carpool.variants.demand`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from carpool.scaling import Application
from carpool.variants.demand import VariantDemand

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["demanded"]


def demanded(
    rates_rps: Mapping[str, float], slo_s: float
) -> tuple[tuple[Application, ...], dict[str, float]]:
    """Return the applications that choose variants, and the rates of all other requests.

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
