"""Instances of variants as a plan: a class for each, and for each application its own route.

A route leads to what is accurate enough, and to nothing else: who asks for much never gets less
because others run. Where nothing that suits an application runs, its route leads to what would have
to be started for it. Requests of no application count as those that ask for most.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from carpool.plan import Plan, Predicted, Route
from scaler.core.draft import classes_of, unchanged
from scaler.core.sizing import matching

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.plan import OnOffer
    from scaler.core.infaas.offers import Offer
    from scaler.core.infaas.task import Counts, Need, Solution, Task
    from scaler.core.snapshot import AppLoad, FunctionView

__all__ = ["running_offers", "unplaced_rps", "variant_plan"]

Fleet = Counter["Offer"]


def variant_plan(
    view: FunctionView,
    offers: Sequence[Offer],
    task: Task,
    solution: Solution,
    missing_rps: float,
    on_offer: tuple[OnOffer, ...] = (),
) -> Plan | None:
    """The next plan; the one in force if nothing but words has changed, None without any class.

    Args:
        view: The function.
        offers: What there is, the cheapest first; the options of the task.
        task: What was to be decided, with a need for each application.
        solution: What was.
        missing_rps: Requests per second for which there is nothing.
        on_offer: What requests may choose from.
    """
    fleet: Fleet = Counter(dict(zip(offers, solution.counts, strict=True)))
    shares = [
        _worked(offers, need, own) for need, own in zip(task.needs, solution.shares, strict=True)
    ]
    targets = {
        app.name: _target(app, fleet, own, offers)
        for app, own in zip(view.apps, shares, strict=True)
    }
    wanted = {offer: fleet[offer] for offer in offers if fleet[offer]}
    for target in targets.values():
        for offer in target:
            wanted.setdefault(offer, 0)
    if not wanted:
        return None
    classes = classes_of(Counter({offer.size: count for offer, count in wanted.items()}))
    weights = {
        app: {classes[offer.size].name: weight for offer, weight in target.items()}
        for app, target in targets.items()
        if target
    }
    explain = [
        _said(app, need, own) for app, need, own in zip(view.apps, task.needs, shares, strict=True)
    ]
    if missing_rps:
        explain.append(f"{missing_rps:.4g} requests/s find no room, or no variant that suits them.")
    before = view.plan
    plan = Plan(
        function=view.name,
        version=before.version + 1 if before else 1,
        policy="infaas",
        classes=tuple(classes.values()),
        routes=_routes(view, weights),
        predicted=_predicted(view, task, solution),
        explain=tuple(explain),
        variants=on_offer,
    )
    return before if before and unchanged(plan, before) else plan


def running_offers(view: FunctionView, offers: Sequence[Offer]) -> Counts:
    """Instances that there are of each offer."""
    found: Counter[int] = Counter()
    sizes = tuple(offer.size for offer in offers)
    for planned in view.plan.classes if view.plan else ():
        there = view.instances.get(planned.name)
        size = matching(sizes, planned)
        if size and there:
            found[sizes.index(size)] += there.ready + there.loading
    return tuple(found[number] for number in range(len(offers)))


def unplaced_rps(view: FunctionView, task: Task, solution: Solution) -> float:
    """Requests per second that nothing takes, of all applications."""
    missing = task.missing(solution)
    return sum(
        app.rate_rps * lacking / need.rate_rps
        for app, need, lacking in zip(view.apps, task.needs, missing, strict=True)
        if lacking
    )


def _worked(offers: Sequence[Offer], need: Need, own: Sequence[float]) -> dict[Offer, float]:
    """What each offer takes of a need, in requests per second."""
    parts = zip(offers, own, need.worth, strict=True)
    return {offer: part * worth for offer, part, worth in parts if part}


def _predicted(view: FunctionView, task: Task, solution: Solution) -> Predicted:
    cost_s = sum(o.cost * n for o, n in zip(task.options, solution.counts, strict=True))
    return Predicted(cost_per_request=cost_s / view.rate_rps if view.rate_rps else None)


def _said(app: AppLoad, need: Need, worked: Mapping[Offer, float]) -> str:
    names = " and ".join(offer.size.name for offer in worked) or "nothing"
    asked = f"within {app.slo_s * 1000:.4g} ms"
    if app.accuracy:
        asked += f" at an accuracy of {app.accuracy:.4g}"
    return f"{app.name}: {need.rate_rps:.4g} requests/s with reserve, {asked}, by {names}."


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
    # Requests that choose for themselves follow no route; one is there if nobody else comes.
    known = [app for app in known if not app.chooses] or known
    strictest = max(known, key=lambda app: (app.accuracy, -app.slo_s))
    everybody = weights[strictest.name]
    others = [app for app in known if weights[app.name] != everybody]
    routes = [Route(app.name, weights[app.name], 0.0, app.accuracy) for app in others]
    return (Route("*", everybody, 0.0, strictest.accuracy), *routes)
