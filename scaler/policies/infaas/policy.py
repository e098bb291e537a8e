"""INFaaS (ATC'21): applications state requirements, and variants are scaled to meet them.

Each application has an objective and a minimum accuracy. A round checks whether the running
instances can serve the load with the slack. If not, it adds instances of running or of other
variants, whichever costs less including loading; if so, it removes what the recent peak would not
need, and replaces variants by cheaper ones.

* ``greedy`` finds both step by step, as long as a step lowers the cost (`greedy`).
* ``published`` takes one step per round, the paper's heuristic (`infaas.published`).
* ``program`` solves the paper's integer program (`infaas.program`), which needs SciPy.

Deviations from the paper: capacity also allows for queueing at random arrivals, not for the slack
alone; applications with different demands share instances that suit both; scaling down waits for
the longest loading time or ``calm_s``, whichever is longer; ``C`` is what an instance costs for a
second by the scenario's prices, or its resource units if there are none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from carpool.recent import Recent, Same
from carpool.scaling import VariantSet
from carpool.server_advice import server_advice
from carpool.validation.problems import Problems
from scaler.policies.infaas.demand import Rates
from scaler.policies.infaas.greedy import greedy
from scaler.policies.infaas.offers import Offers, single_offers
from scaler.policies.infaas.program import available, program
from scaler.policies.infaas.published import SLACK, published
from scaler.policies.infaas.task import Need, Option, Task
from scaler.policies.infaas.variant_plan import running_offers, unplaced_rps, variant_proposal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.scaling import Application, ClusterView, FunctionLoad, Proposal, Size
    from scaler.policies.infaas.offers import Offer
    from scaler.policies.infaas.task import Solution

__all__ = ["Infaas"]

_KEPT = 8192  # loads whose needs are remembered; a scaler has fewer functions
_PLANNERS = {"greedy": greedy, "published": published, "program": program}


class _PricedOffers(NamedTuple):
    """Offers as a task needs them, cheapest first.

    Attributes:
        offers: The offers, in this order.
        options: The same for the planner.
        costs: Cost of a request in a full batch on each.
    """

    offers: Sequence[Offer]
    options: tuple[Option, ...]
    costs: tuple[float, ...]


class Infaas:
    """Replicates, upgrades and downgrades variants of a model as its applications require."""

    @dataclass(frozen=True, slots=True)
    class Params:
        """Parameters of `Infaas`.

        Attributes:
            planner: search for instances: ``greedy``, the paper's ``published`` or ``program``.
            scaling: ``variants``, or ``replicate`` the one that is cheapest at first.
            slack: required capacity, as a multiple of the load.
            loading: cost of a second of loading, in seconds of running (the paper's lambda).
            reserve: whether to reserve capacity for random arrivals in addition to the slack.
            smoothing_s: seconds over which measured rates are averaged; 0: no averaging.
            calm_s: seconds for which less must have been needed before instances are removed.
        """

        planner: Literal["greedy", "published", "program"] = "greedy"
        scaling: Literal["variants", "replicate"] = "variants"
        slack: float = SLACK
        loading: float = 0.1
        reserve: bool = True
        smoothing_s: float = 10.0
        calm_s: float = 10.0

        def __post_init__(self) -> None:
            """Refuse parameters that are out of range."""
            problems, names = Problems(), ("loading", "smoothing_s", "calm_s")
            problems.check(self, ("slack",), lambda v: 1 <= v < math.inf, "a number of at least 1")
            problems.check(self, names, lambda v: 0 <= v < math.inf, "a number of at least 0")
            problems.raise_if_any()

    def __init__(self, params: Params) -> None:
        if params.planner == "program":
            available()
        self._params = params
        self._rates = Rates(params.smoothing_s, params.calm_s)
        self._offers = Offers()
        self._priced: Recent[_PricedOffers] = Recent(_KEPT)
        self._replicated: Recent[tuple[Offer, ...]] = Recent(_KEPT)
        self._needs: Recent[tuple[Need, ...]] = Recent(_KEPT)
        self._chosen: dict[str, str] = {}
        self._solved: dict[str, tuple[Task, Solution]] = {}

    def propose(
        self, loads: Sequence[FunctionLoad], cluster: ClusterView
    ) -> Mapping[str, Proposal]:
        """See `ScalePolicy.propose`."""
        proposals = {load.name: self._proposal(load, cluster) for load in loads}
        advice = server_advice(cluster)
        if not advice:
            return proposals
        return {
            name: replace(each, explain=[*each.explain, *advice])
            for name, each in proposals.items()
        }

    def _proposal(self, load: FunctionLoad, cluster: ClusterView) -> Proposal:
        offers = self._suiting(load)
        priced = self._priced.of(Same(offers), lambda: _priced_offers(offers))
        task = self._task(load, priced, cluster)
        solved = self._solution(load.name, task)
        solution = self._placed(load, task, solved, offers, cluster)
        missing_rps = unplaced_rps(load, task, solution)
        return variant_proposal(load, offers, task, solution, missing_rps, _on_offer(load, offers))

    def _suiting(self, load: FunctionLoad) -> Sequence[Offer]:
        """Return the offers that may run, cheapest first."""
        offers = self._offers.of(load)
        return self._only(load, offers) if self._params.scaling == "replicate" else offers

    def _only(self, load: FunctionLoad, offers: Sequence[Offer]) -> tuple[Offer, ...]:
        """Return the offer with the cheapest request that all applications can use.

        Repeated calls return the same tuple object, which serves as a cache key.
        """
        if load.name not in self._chosen:
            suiting = _usable_by_all(load, offers)
            if not suiting:
                return ()
            self._chosen[load.name] = min(suiting, key=_of_request).size.name
        name = self._chosen[load.name]
        key = tuple((app.slo_s, app.accuracy, app.variant) for app in load.apps)
        return self._replicated.of(
            (Same(offers), name, key),
            lambda: tuple(o for o in _usable_by_all(load, offers) if o.size.name == name),
        )

    def _task(self, load: FunctionLoad, priced: _PricedOffers, cluster: ClusterView) -> Task:
        """Return the task for the current rates if they need more instances, else for the peak."""
        options, running = priced.options, running_offers(load, priced.offers)
        demand = self._rates.of(load, load.now_s)
        free = cluster.free()
        used = [sum(o[at] * n for o, n in zip(options, running, strict=True)) for at in (3, 4)]
        whole = (free[0] + used[0], free[1] + used[1])
        needs = self._needed(load, priced, demand.now)
        now = Task(options, running, needs, self._params.loading, whole, load.instance_limit)
        if not any(now.missing(now.solution(running))):
            now = replace(now, needs=self._needed(load, priced, demand.peak))
        return now.within_reach()

    def _needed(
        self, load: FunctionLoad, priced: _PricedOffers, rates_rps: tuple[float, ...]
    ) -> tuple[Need, ...]:
        """Return the need of each application, computed once per load."""
        demands = tuple((app.slo_s, app.accuracy, app.cost, app.variant) for app in load.apps)
        key = (Same(priced.offers), demands, load.percentile, rates_rps)
        miss = 1 - load.percentile if self._params.reserve else 1.0
        return self._needs.of(
            key,
            lambda: tuple(
                self._need(app, priced, rate_rps, miss)
                for app, rate_rps in zip(load.apps, rates_rps, strict=True)
            ),
        )

    def _need(self, app: Application, priced: _PricedOffers, rate_rps: float, miss: float) -> Need:
        need_rps = rate_rps * self._params.slack
        served_rps = tuple(
            offer.worth_rps(app, rate_rps, need_rps, miss) if cost <= app.cost else 0.0
            for offer, cost in zip(priced.offers, priced.costs, strict=True)
        )
        return Need(need_rps, served_rps)

    def _solution(self, function: str, task: Task) -> Solution:
        """Return the planner's solution, reusing the last one if nothing has changed."""
        known = self._solved.get(function)
        if known is None or known[0] != task:
            if not task.options:
                return task.solution(())
            known = self._solved[function] = (task, _PLANNERS[self._params.planner](task))
        return known[1]

    def _placed(
        self,
        load: FunctionLoad,
        task: Task,
        solution: Solution,
        offers: Sequence[Offer],
        cluster: ClusterView,
    ) -> Solution:
        """Return the part of the solution that fits; while some does not, keep what is needed."""
        wanted = list(solution.counts)
        if offers and sum(wanted) < load.min_instances:
            wanted[0] += load.min_instances - sum(wanted)
        added = [
            cluster.place_up_to(offer.size.resources, count - there) if count > there else 0
            for offer, count, there in zip(offers, wanted, task.running, strict=True)
        ]
        counts = [
            min(count, there) + more
            for count, there, more in zip(wanted, task.running, added, strict=True)
        ]
        if counts != wanted and sum(task.running) + sum(added) <= task.most:
            placed_counts = [there + more for there, more in zip(task.running, added, strict=True)]
            counts = _without_idle(task, placed_counts, wanted, load.min_instances)
        return solution if tuple(counts) == solution.counts else task.solution(tuple(counts))


def _usable_by_all(load: FunctionLoad, offers: Sequence[Offer]) -> list[Offer]:
    return [offer for offer in offers if all(offer.suits(app) for app in load.apps)]


def _without_idle(task: Task, placed_counts: list[int], wanted: list[int], least: int) -> list[int]:
    """Free capacity by removing unwanted instances that are not needed, most expensive first."""
    counts = list(placed_counts)
    lacking = task.missing(task.solution(tuple(counts)))
    for option in sorted(range(len(counts)), key=lambda o: -task.options[o].cost):
        while counts[option] > wanted[option] and sum(counts) > least:
            counts[option] -= 1
            if task.missing(task.solution(tuple(counts))) != lacking:
                counts[option] += 1
                break
    return counts


def _priced_offers(offers: Sequence[Offer]) -> _PricedOffers:
    options = tuple(
        Option(o.size.rate_rps, o.size.price_per_s, o.load_s, *o.size.resources[:2]) for o in offers
    )
    return _PricedOffers(offers, options, tuple(map(_of_request, offers)))


def _of_request(offer: Offer) -> float:
    """Return the cost of a request in a full batch."""
    return offer.size.price_per_s / offer.size.rate_rps


def _on_offer(load: FunctionLoad, offers: Sequence[Offer]) -> tuple[Size, ...]:
    """Return the sizes that requests may choose from: all offers, and single-request variants."""
    if not isinstance(load.model, VariantSet):
        return ()
    return tuple(offer.size for offer in (*offers, *single_offers(load, offers)))
