"""INFless (ASPLOS'22): instances of several sizes for one function, each at an efficient rate.

A round keeps the existing instances. If the rate exceeds their throughput, more are added (the
paper's case i); if it is below ``theta``, the least efficient are released until it is not (case
iii); otherwise only the rate is divided again (case ii).

New instances are found by one of two searches:

* ``published`` is Algorithm 1 with Eq. 10, the largest feasible batch first (`published`).
  It loads instances up to the last request per second that they can serve.
* ``priced`` is ours (`priced`): the cheapest cover of the rate and of a reserve for random
  arrivals, at a price of cores at which all functions fit on the servers. On the paper's measured
  tables the largest batch is often not the most efficient size. Batches wait for more requests
  for as long as they could still be served after a batch that has just begun. Below the least rate
  at which batches fill in time (Eq. 1) they do not wait: there the paper has instances for single
  requests, which cost no less.

Deviations from the paper: rates are not rounded to whole batches per second unless configured; the
objective of a function is that of its tightest application; releasing an instance frees no capacity
within the round, as its location is not known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from carpool.plain_number import plain
from carpool.scaling import Proposal
from carpool.sizing import SIZES, Objective
from carpool.validation.problems import Problems
from scaler.policies.common import rate_shares
from scaler.policies.common.draft import Draft, listed, running
from scaler.policies.infless.bill import rate_step
from scaler.policies.infless.covering import CoverDemand
from scaler.policies.infless.priced import PricedSearch, Task
from scaler.policies.infless.published import add_published

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping, Sequence

    from carpool.scaling import ClusterView, FunctionLoad, Size

__all__ = ["Infless"]

_STILL = 0.9  # share of the rate at which batches fill, above which they continue to wait


class Infless:
    """Adds and releases instances of several sizes one by one, each at an efficient rate."""

    @dataclass(frozen=True, slots=True)
    class Params:
        """Parameters of `Infless`.

        Attributes:
            search: search for new instances: ``priced``, or the paper's ``published``.
            alpha: release threshold, from 0, the lowest rate of the instances, to 1, the highest.
            offset: share added to predicted execution times until their error has been measured.
            rounded: whether rates are whole batches per second, as printed.
            aim: what ``priced`` minimises: ``cost``, the bill; ``resources``, by INFless's weights,
                as the paper does; or ``servers`` in use.
            keep_alive_s: seconds an idle instance stays; null: as long as it is planned.
        """

        search: Literal["priced", "published"] = "priced"
        alpha: float = 0.8
        offset: float = 0.1
        rounded: bool = False
        aim: Literal["cost", "resources", "servers"] = "cost"
        keep_alive_s: float | None = None

        def __post_init__(self) -> None:
            """Refuse parameters that are out of range."""
            problems = Problems()
            problems.check(self, ("alpha",), lambda v: 0 <= v <= 1, "a number from 0 to 1")
            names = ("offset", "keep_alive_s")
            problems.check(self, names, lambda v: 0 <= v < math.inf, "a number of at least 0")
            problems.raise_if_any()

    def __init__(self, params: Params) -> None:
        self._params = params
        self._saves_cost = params.search == "priced" and params.aim == "cost"
        self._priced = PricedSearch(params.aim) if params.search == "priced" else None

    def propose(
        self, loads: Sequence[FunctionLoad], cluster: ClusterView
    ) -> Mapping[str, Proposal]:
        """See `ScalePolicy.propose`."""
        there = [self._running(load) for load in loads]
        tasks = [self._kept(draft) for draft in there]
        kept = [task.draft.instances.copy() for task in tasks]
        cluster = self._add(tasks, cluster)
        proposals: dict[str, Proposal] = {}
        for task, before, after in zip(tasks, there, kept, strict=True):
            draft, unserved_rps = task.draft, task.draft.unplaced_rps
            self._add_least(draft, cluster)
            draft.explain += _reasons(draft, before.instances - after)
            proposals[draft.load.name] = self._proposal(draft, unserved_rps)
        return proposals

    def _running(self, load: FunctionLoad) -> Draft:
        objective = Objective.of(load, self._params.offset, rounded=self._params.rounded)
        sizes = SIZES.of(load.model, objective, load.prices)
        return Draft(load, sizes, running(load, sizes), load.rate_rps)

    def _kept(self, there: Draft) -> Task:
        """Release the instances that have too little load, and return a task with the others."""
        load = there.load
        demand = CoverDemand(load.rate_rps, load.tightest_s, 1 - load.percentile)

        def needed_rps(instances: Counter[Size]) -> float:
            return demand.having(instances).needed_rps if self._priced else load.rate_rps

        most = load.instance_limit
        instances = rate_shares.release(
            there.instances, needed_rps, self._params.alpha, self._least(load), most, self._worth
        )
        draft = replace(there, instances=instances)
        return Task(draft, demand.having(instances), most - instances.total())

    def _price(self, size: Size) -> float:
        """Return the price of an instance, or its resource units, depending on what is saved."""
        return size.price_per_s if self._saves_cost else size.units

    def _worth(self, size: Size) -> float:
        return size.rate_rps / self._price(size)

    def _least(self, load: FunctionLoad) -> int:
        """Return the minimum number of instances; with a keep-alive an idle one costs nothing."""
        least = load.min_instances
        return max(least, 1) if self._params.keep_alive_s is not None else least

    def _add(self, tasks: Sequence[Task], cluster: ClusterView) -> ClusterView:
        """Add what is missing, and return the cluster with all of it placed."""
        if self._priced:
            return self._priced.add(tasks, cluster)
        for task in tasks:
            add_published(task.draft, cluster, task.draft.instances.total() + task.limit)
        return cluster

    def _add_least(self, draft: Draft, cluster: ClusterView) -> None:
        """Add the smallest size up to the minimum; if that is 0, name it as the size to start.

        Of equally small ones, it is the size with the highest throughput, ready for when the load
        comes.
        """
        lacking = self._least(draft.load) - draft.instances.total()
        if draft.sizes and (lacking > 0 or not draft.instances):
            smallest = min(draft.sizes, key=lambda size: (self._price(size), -size.rate_rps))
            placed = cluster.place_up_to(smallest.resources, lacking) if lacking > 0 else 0
            if placed or not draft.instances:
                draft.instances[smallest] += placed

    def _proposal(self, draft: Draft, unserved_rps: float) -> Proposal:
        return Proposal(
            draft.instances,
            wait_s=self._wait_s(draft),
            shares=_shares(draft),
            explain=draft.explain,
            keep_alive_s=self._params.keep_alive_s,
            unserved_rps=unserved_rps,
        )

    def _wait_s(self, draft: Draft) -> float | dict[str, float]:
        """Return how long a request may wait for others; 0 if batches would not fill.

        A single number applies to the tightest application; others wait longer.

        If executions are paid for, waiting pays even if the batch does not fill.
        """
        batching = [size.exec_s for size in draft.instances if size.batch > 1]
        if not batching or not (self._fills(draft) or self._paid_together(draft.load)):
            return {"*": 0.0}  # whatever an application's objective
        executions = 2 if self._priced else 1
        return max(draft.load.tightest_s - executions * max(batching), 0.0)

    def _fills(self, draft: Draft) -> bool:
        plan = draft.load.plan
        waits = plan is not None and any(route.max_wait_s for route in plan.routes)
        share = _STILL if waits else 1.0  # else it would change with every small change of the rate
        return draft.load.rate_rps >= share * rate_shares.rate_low(draft.instances)

    def _paid_together(self, load: FunctionLoad) -> bool:
        return self._saves_cost and rate_step(load) is not None


def _shares(draft: Draft) -> dict[str, dict[Size, float]]:
    """Return the rate of each size by INFless's dispatch; empty if no instance runs."""
    each = rate_shares.rates(draft.load.rate_rps, draft.instances)
    shares = {size: each[size] * count for size, count in draft.instances.items()}
    return {"*": shares} if sum(shares.values()) > 0 else {}


def _reasons(draft: Draft, released: Counter[Size]) -> list[str]:
    load = draft.load
    slo_ms = load.tightest_s * 1000
    said = f"{plain(load.rate_rps)} requests/s within {plain(slo_ms)} ms: {listed(draft.instances)}"
    sentences = [f"{said}, which can serve {plain(rate_shares.rate_high(draft.instances))}."]
    if released:
        sentences.append(f"Released {listed(released)}, which had too little load.")
    if draft.unplaced_rps:
        sentences.append(f"There is no capacity for {plain(draft.unplaced_rps)} requests/s.")
    return sentences
