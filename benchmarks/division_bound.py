"""Bound the cost of dividing applications into sets from below, for any instances and windows.

The space is somewhat larger than HarmonyBatch's (IWQoS'24): any division into sets, in the order of
objectives or not; for each set any configuration of the model; windows that are the objectives less
one allowance, of any length; and no application late more often than allowed. Eq. 10 of the paper
bounds every window by the objective less the maximum execution time. As batches only grow with
windows, the best of its plans have these longest windows, which is one allowance too, and requests
are late no more often than executions exceed their maximum.

Why it is a bound: compare windows with longer ones, for the same first request and the same
arrivals after it. With the longer windows the batch leaves later, has more members, each of which
has waited longer, and takes longer to execute. So these grow with the windows:

* the mean size ``E[N]``;
* the late requests of an application in a batch, ``M_k``, of which its late share is
  ``M_k / (eta_k E[N])`` with ``eta_k`` its part of the rate.

Hence for all windows between two, that share is at least ``M_k`` of the shorter divided by ``E[N]``
of the longer. Where this exceeds what is allowed, nothing between the two is feasible. Starting
from the longest windows, one stretch after the other is ruled out in this way; the first that is
not gives the largest possible mean size. A batch of n costs at least ``fixed + item * n``, so a
request costs at least ``fixed / E[N] + item``. Each set takes the least over all configurations,
and dynamic programming gives the cheapest division into sets.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.divisions import cheapest_division
from scaler.policies.harmonybatch.execution_times import SlicedTimes
from scaler.policies.harmonybatch.merged_windows import MergedBatches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.latency import Configuration, LatencyModel
    from carpool.scaling import Billing
    from scaler.policies.harmonybatch.settling import Member

__all__ = ["least_cost"]

_CELLS = 32
_DIGITS = 1e-3  # part of the late requests by which integrals are off at most
_SHORT = 1 / 256  # part of the tightest objective, the shortest stretch that is looked at


class _Priced:
    """A configuration with a linear lower bound on the cost of its batches."""

    def __init__(self, configuration: Configuration, model: LatencyModel, rule: Billing) -> None:
        self.batch = configuration.batch
        self.times = SlicedTimes(model, configuration, rule)
        costs = self.times.costs
        more = np.arange(1, self.batch)
        self._item = float(((costs[1:] - costs[0]) / more).min(initial=np.inf)) if len(more) else 0
        self._fixed = float(costs[0]) - self._item

    def cost(self, mean_size: float) -> float:
        """Return the least cost per request at a mean batch size."""
        return self._fixed / mean_size + self._item


def least_cost(
    members: Sequence[Member], model: LatencyModel, rule: Billing, max_batch: int, miss: float
) -> float:
    """Return a lower bound on the cost per second of any division into sets.

    Args:
        members: Ordered by objective, the tightest first.
        model: Execution times of batches, which must not decrease with the batch size.
        rule: Billing rule; instances that are billed for their lifetime are not counted.
        max_batch: Largest batch size.
        miss: Share of an application's requests that may be late.
    """
    every = [_Priced(each, model, rule) for each in model.configurations(max_batch)]
    every.sort(key=lambda each: each.cost(each.batch))

    def money(group: Sequence[Member]) -> float:
        return _least(group, every, miss) * sum(member.rate_rps for member in group)

    return cheapest_division(members, money)[0]


def _least(group: Sequence[Member], every: Sequence[_Priced], miss: float) -> float:
    """Return the least cost per request of a set."""
    slo_s = np.array([group[0].slo_s])
    alone = [each for each in every if each.batch == 1]
    in_time = (each.cost(1.0) for each in alone if each.times.tails(slo_s)[0][0, 0] <= miss)
    best = min(in_time, default=np.inf)
    for each in every:
        if each.cost(each.batch) >= best:
            break  # those that follow cost more
        if each.batch > 1:
            best = min(best, _least_on(each, group, miss, best))
    return best


def _least_on(priced: _Priced, group: Sequence[Member], miss: float, best: float) -> float:
    """Return a set's least cost per request on one configuration, or infinity if over ``best``."""

    @functools.cache
    def batches(allowance_s: float) -> MergedBatches:
        windows = [max(member.slo_s - allowance_s, 0.0) for member in group]
        return MergedBatches([each.rate_rps for each in group], windows, priced.batch, _CELLS)

    def ruled_out(allowance_s: float, longer: MergedBatches) -> bool:
        """Return whether all windows from these to the longer ones are infeasible."""
        shorter = batches(allowance_s)
        allowed = miss * (1 + _DIGITS) * longer.mean_size / shorter.mean_size
        return any(
            shorter.late_share(place, member.slo_s, priced.times) > allowed
            for place, member in enumerate(group)
        )

    at_s, most_s = 0.0, group[-1].slo_s
    step_s = most_s
    while (cost := priced.cost(batches(at_s).mean_size)) < best:
        step_s = min(step_s, most_s - at_s)
        if step_s > 0 and ruled_out(at_s + step_s, batches(at_s)):
            at_s += step_s
            if at_s >= most_s:
                return np.inf
        elif step_s <= _SHORT * group[0].slo_s:
            return cost
        else:
            step_s /= 2
    return np.inf
