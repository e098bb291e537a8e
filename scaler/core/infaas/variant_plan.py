"""Instances of variants as a plan: a class for each, and for each application its own route.

A route leads to what is accurate enough, and to nothing else: who asks for much never gets less
because others run. Where nothing that suits an application runs, its route leads to what would have
to be started for it. Requests of no application count as those that ask for most.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from carpool.plan import Plan, Predicted, Quantiles, Route
from scaler.core.draft import classes_of, unchanged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler.core.infaas.offers import Offer
    from scaler.core.sizing import Size
    from scaler.core.snapshot import AppLoad, FunctionView

__all__ = ["Fleet", "variant_plan"]

Fleet = Counter["Offer"]


def variant_plan(
    view: FunctionView,
    fleet: Fleet,
    shares: Mapping[str, Mapping[Offer, float]],
    offers: Sequence[Offer],
    explain: Sequence[str],
    cost_s: float,
) -> Plan | None:
    """The next plan; the one in force if nothing but words has changed, None without any class.

    Args:
        view: The function.
        fleet: How many instances of which offer.
        shares: What each application gets of each, in any unit.
        offers: What there is, the cheapest first.
        explain: Why.
        cost_s: What the instances cost for a second.
    """
    targets = {app.name: _target(app, fleet, shares.get(app.name, {}), offers) for app in view.apps}
    wanted = {offer: fleet[offer] for offer in offers if fleet[offer]}
    for target in targets.values():
        for offer in target:
            wanted.setdefault(offer, 0)
    if not wanted:
        return None
    instances: Counter[Size] = Counter({offer.size: count for offer, count in wanted.items()})
    classes = classes_of(instances)
    routes = _routes(
        view,
        {
            app: {classes[offer.size].name: weight for offer, weight in target.items()}
            for app, target in targets.items()
            if target
        },
    )
    before = view.plan
    slowest_s = max([offer.size.exec_s for offer, count in wanted.items() if count], default=None)
    plan = Plan(
        function=view.name,
        version=before.version + 1 if before else 1,
        policy="infaas",
        classes=tuple(classes.values()),
        routes=routes,
        predicted=Predicted(
            latency_s=Quantiles(p99=slowest_s),
            cost_per_request=cost_s / view.rate_rps if view.rate_rps else None,
        ),
        explain=tuple(explain),
    )
    return before if before and unchanged(plan, before) else plan


def _target(
    app: AppLoad, fleet: Fleet, shares: Mapping[Offer, float], offers: Sequence[Offer]
) -> dict[Offer, float]:
    """Where an application's requests go, in shares of 1."""
    given = {offer: share for offer, share in shares.items() if share > 0 and fleet[offer]}
    if not given:
        given = {o: fleet[o] * o.size.rate_high for o in offers if fleet[o] and o.suits(app)}
    if not given:
        accurate = [offer for offer in offers if offer.accuracy >= app.accuracy]
        suiting = [offer for offer in accurate if offer.suits(app)]
        late = [min(accurate, key=lambda offer: offer.size.exec_s)] if accurate else []
        given = dict.fromkeys((suiting or late)[:1], 1.0)
    total = sum(given.values())
    return {offer: share / total for offer, share in given.items()}


def _routes(view: FunctionView, weights: Mapping[str, Mapping[str, float]]) -> tuple[Route, ...]:
    known = [app for app in view.apps if app.name in weights]
    strictest = max(known, key=lambda app: (app.accuracy, -app.slo_s))
    everybody = weights[strictest.name]
    others = [app for app in known if weights[app.name] != everybody]
    routes = [Route(app.name, weights[app.name], 0.0) for app in others]
    return (Route("*", everybody, 0.0), *routes)
