"""A plan with a value in every field, and variants of it with one fault."""

from __future__ import annotations

from typing import Any

from carpool.plan import InstanceClass, OnOffer, Plan, Predicted, Quantiles, Route

__all__ = ["PLAN", "edited"]

PLAN = Plan(
    function="classify",
    version=7,
    policy="harmony",
    classes=(
        InstanceClass("small", 0.5, 4, 2, "int8", 0.0, 512.0, 0.08, 0.0, 40.0),
        InstanceClass("gpu", 1.0, 32, 1, "", 25.0, 2048.0, 0.05, 120.0, 600.0),
    ),
    routes=(
        Route("web", {"small": 0.25, "gpu": 0.75}, 0.1, 0.9),
        Route("*", {"gpu": 1.0}, 0.02),
    ),
    prewarm_s=30.0,
    keep_alive_s=600.0,
    predicted=Predicted(Quantiles(0.06, 0.11, 0.15), 2.1e-6, 11.5, 0.004),
    explain=("gpu takes web's bulk: 75 % of 320 requests per second",),
    variants=(OnOffer("small", "int8", 0.93, 0.16, 1e-6, 0.4),),
)


def edited(path: str, value: object) -> dict[str, Any]:
    """Return the plan as a dictionary with one value replaced, or removed for ``...``."""
    data: dict[str, Any] = PLAN.to_dict()
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    place: Any = data
    for part in parents:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return data
