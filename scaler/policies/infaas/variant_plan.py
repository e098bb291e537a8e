"""Makes a proposal of a solution: instances of variants, and each application's share of them.

A route leads only to variants that are accurate enough: requests with high demands never get less
because other variants run. If nothing that suits an application runs, its route leads to what would
have to be started for it. Requests without an application count as those with the highest demands.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from carpool.plain_number import plain
from carpool.scaling import Predicted, Proposal
from scaler.policies.common.draft import running

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.scaling import Application, FunctionLoad, Size
    from scaler.policies.infaas.offers import Offer
    from scaler.policies.infaas.task import Counts, Need, Solution, Task

__all__ = ["running_offers", "unplaced_rps", "variant_proposal"]

Fleet = Counter["Offer"]


def variant_proposal(
    load: FunctionLoad,
    offers: Sequence[Offer],
    task: Task,
    solution: Solution,
    missing_rps: float,
    on_offer: Sequence[Size],
) -> Proposal:
    """Return a solution as a proposal.

    Args:
        load: Load of the function.
        offers: All offers, cheapest first; the options of the task.
        task: The planning problem, with a need for each application.
        solution: Its solution.
        missing_rps: Requests per second that are not served.
        on_offer: Sizes that requests may choose from.
    """
    fleet: Fleet = Counter(dict(zip(offers, solution.counts, strict=True)))
    shares = [
        _served_rps(offers, need, own)
        for need, own in zip(task.needs, solution.shares, strict=True)
    ]
    targets = {
        app.name: _target(app, fleet, own, offers)
        for app, own in zip(load.apps, shares, strict=True)
    }
    wanted = {offer.size: fleet[offer] for offer in offers if fleet[offer]}
    for target in targets.values():
        for offer in target:
            wanted.setdefault(offer.size, 0)
    explain = [
        _reason(app, need, own)
        for app, need, own in zip(load.apps, task.needs, shares, strict=True)
    ]
    if missing_rps:
        explain.append(f"{plain(missing_rps)} requests/s have no capacity, or no suitable variant.")
    return Proposal(
        wanted,
        wait_s={"*": 0.0},
        shares={
            app: {offer.size: weight for offer, weight in target.items()}
            for app, target in targets.items()
            if target
        },
        explain=explain,
        unserved_rps=missing_rps,
        predicted=_predicted(load, task, solution),
        on_offer=on_offer,
    )


def running_offers(load: FunctionLoad, offers: Sequence[Offer]) -> Counts:
    """Return the number of existing instances of each offer."""
    there = running(load, [offer.size for offer in offers])
    return tuple(there[offer.size] for offer in offers)


def unplaced_rps(load: FunctionLoad, task: Task, solution: Solution) -> float:
    """Return the requests per second of all applications that are not served."""
    missing = task.missing(solution)
    return sum(
        app.rate_rps * lacking / need.rate_rps
        for app, need, lacking in zip(load.apps, task.needs, missing, strict=True)
        if lacking
    )


def _served_rps(offers: Sequence[Offer], need: Need, own: Sequence[float]) -> dict[Offer, float]:
    """Return what each offer serves of a need, in requests per second."""
    parts = zip(offers, own, need.served_rps, strict=True)
    return {offer: part * served_rps for offer, part, served_rps in parts if part}


def _predicted(load: FunctionLoad, task: Task, solution: Solution) -> Predicted:
    cost_s = sum(o.cost * n for o, n in zip(task.options, solution.counts, strict=True))
    return Predicted(cost_per_request=cost_s / load.rate_rps if load.rate_rps else None)


def _reason(app: Application, need: Need, served_rps: Mapping[Offer, float]) -> str:
    names = " and ".join(offer.size.name for offer in served_rps) or "nothing"
    objective = f"within {plain(app.slo_s * 1000)} ms"
    if app.accuracy:
        objective += f" at an accuracy of {plain(app.accuracy)}"
    return f"{app.name}: {plain(need.rate_rps)} requests/s with reserve, {objective}, by {names}."


def _target(
    app: Application, fleet: Fleet, shares: Mapping[Offer, float], offers: Sequence[Offer]
) -> dict[Offer, float]:
    """Return where an application's requests go, as weights that add up to 1."""
    given = {offer: share for offer, share in shares.items() if share > 0 and fleet[offer]}
    if not given:
        given = {o: fleet[o] * o.size.rate_rps for o in offers if fleet[o] and o.suits(app)}
    if not given:
        accurate = [offer for offer in offers if offer.accuracy >= app.accuracy]
        suiting = [offer for offer in accurate if offer.suits(app)]
        late = [min(accurate, key=lambda offer: offer.size.exec_s)] if accurate else []
        given = dict.fromkeys((suiting or late)[:1], 1.0)
    total = sum(given.values())
    return {offer: share / total for offer, share in given.items()}
