"""Summarize the runs: each policy's cost and misses with intervals, and the policy to choose.

Among the policies that miss no more than the objective's percentile allows and cost at most three
percent more than the cheapest of them, the one with the fewest misses is chosen. If no policy
meets the objective, the one with the fewest misses is chosen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.confidence_intervals import UNKNOWN, Estimate, ratio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from simulator.matrix.rows import Row

__all__ = ["Verdict", "beside", "best", "better", "verdicts"]

_AS_CHEAP = 1.03
_S_PER_HOUR = 3600.0
_NONE_SEEN = 3.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Results of one policy over the simulated parts.

    Attributes:
        policy: Name of the policy.
        parts: Number of parts.
        cost_per_hour: Cost per hour of the trace.
        cost_per_1k: Cost per thousand requests; NaN if there were none.
        over_bound: Cost relative to the lower bound; NaN if the bound is zero.
        missed: Share of requests that missed the objective.
        allowed: Share of requests that may miss it.
        failure: Why the policy could not plan; empty if it could.
        unplaced: Which rates it did not serve and why; empty if there were none.
    """

    policy: str
    parts: int
    cost_per_hour: Estimate
    cost_per_1k: Estimate
    over_bound: Estimate
    missed: Estimate
    allowed: float
    failure: str = ""
    unplaced: str = ""

    @property
    def meets(self) -> bool:
        """Whether the misses on these parts are within the allowed share."""
        return not self.failure and self.missed.value <= self.allowed

    @property
    def surely(self) -> bool:
        """Whether the whole confidence interval of the misses is within the allowed share."""
        return self.meets and self.missed.high <= self.allowed


def verdicts(rows: Mapping[str, Sequence[Row]], allowed: float) -> dict[str, Verdict]:
    """Return the results by policy, for policies with at least one part."""
    return {policy: _verdict(policy, of, allowed) for policy, of in rows.items() if of}


def best(judged: Mapping[str, Verdict]) -> Verdict | None:
    """Return the policy to choose, or None if all have failed."""
    usable = [each for each in judged.values() if not each.failure]
    meeting = [each for each in usable if each.meets]
    if not meeting:
        return min(usable, key=lambda each: each.missed.value, default=None)
    least = min(each.cost_per_hour.value for each in meeting)
    near = [each for each in meeting if each.cost_per_hour.value <= _AS_CHEAP * least]
    return min(near, key=lambda each: (each.missed.value, each.cost_per_hour.value))


def better(chosen: Verdict, other: Verdict, beside: Estimate) -> bool:
    """Return whether to choose another setting instead.

    It is chosen if it alone meets the objective, or if it is better by more than chance explains.
    With fewer parts than the chosen one, the two cannot be compared.

    Args:
        chosen: The best result so far.
        other: The result with the other setting.
        beside: The other one's cost relative to the chosen one's.
    """
    if other.failure or other.parts < chosen.parts:
        return False
    if chosen.meets:
        return other.meets and beside.high < 1
    return other.meets or other.missed.high < chosen.missed.low


def beside(row: Sequence[Row], other: Sequence[Row]) -> Estimate:
    """Return the cost of one policy relative to another's on the same parts."""
    costs = {each.cell: each.cost for each in other}
    common = [each for each in row if each.cell in costs]
    return ratio([each.cost for each in common], [costs[each.cell] for each in common])


def _verdict(policy: str, rows: Sequence[Row], allowed: float) -> Verdict:
    if failures := [row.failure for row in rows if row.failure]:
        unknown = (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
        return Verdict(policy, len(rows), *unknown, allowed, failures[0])
    costs = [row.cost for row in rows]
    requests = [float(row.requests) for row in rows]
    return Verdict(
        policy,
        len(rows),
        ratio(costs, [row.horizon_s / _S_PER_HOUR for row in rows]),
        ratio(costs, [count / 1000 for count in requests]),
        ratio(costs, [row.bound for row in rows]),
        _missed([row.missed * row.requests for row in rows], requests),
        allowed,
        unplaced=next((row.unplaced for row in rows if row.unplaced), ""),
    )


def _missed(missed: Sequence[float], requests: Sequence[float]) -> Estimate:
    """Return the share missed; 0 of n is bounded by 3/n (Hanley and Lippman-Hand, 1983)."""
    if not sum(requests) or (len(requests) == 1 and not sum(missed)):
        return Estimate(0.0, math.nan)
    return ratio(missed, requests) if sum(missed) else Estimate(0.0, _NONE_SEEN / sum(requests))
