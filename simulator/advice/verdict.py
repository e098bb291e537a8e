"""What the runs say: each policy's cost and misses with their intervals, and which to choose.

Chosen is, of the policies that miss no more than the objective's percentile allows, the one that
misses least among those within three percent of the cheapest. Where none does, it is the one that
misses least.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.intervals import Estimate, ratio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from simulator.matrix.rows import Row

__all__ = ["Verdict", "beside", "best", "better", "verdicts"]

_AS_CHEAP = 1.03
_S_PER_HOUR = 3600.0
_NONE_SEEN = 3.0
_UNKNOWN = Estimate(math.nan, math.nan)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One policy on the parts that were simulated.

    Attributes:
        policy: Its name.
        parts: How many.
        cost_per_hour: Of the trace.
        cost_per_1k: Of a thousand requests; NaN: none came.
        over_bound: Cost, times the least that is possible; NaN: that is nothing.
        missed: Share of requests.
        allowed: The share that may be missed.
        failure: What it did wrong where it could not plan at all, and nothing else is known then;
            empty: nothing.
    """

    policy: str
    parts: int
    cost_per_hour: Estimate
    cost_per_1k: Estimate
    over_bound: Estimate
    missed: Estimate
    allowed: float
    failure: str = ""

    @property
    def meets(self) -> bool:
        """Whether it misses no more than it may, on these parts."""
        return not self.failure and self.missed.value <= self.allowed

    @property
    def surely(self) -> bool:
        """Whether the interval of its misses says so, too."""
        return self.meets and self.missed.high <= self.allowed


def verdicts(rows: Mapping[str, Sequence[Row]], allowed: float) -> dict[str, Verdict]:
    """By policy, of those with a part at least."""
    return {policy: _verdict(policy, of, allowed) for policy, of in rows.items() if of}


def best(found: Mapping[str, Verdict]) -> Verdict | None:
    """The one to choose; None: all have failed."""
    usable = [each for each in found.values() if not each.failure]
    meeting = [each for each in usable if each.meets]
    if not meeting:
        return min(usable, key=lambda each: each.missed.value, default=None)
    least = min(each.cost_per_hour.value for each in meeting)
    near = [each for each in meeting if each.cost_per_hour.value <= _AS_CHEAP * least]
    return min(near, key=lambda each: (each.missed.value, each.cost_per_hour.value))


def better(chosen: Verdict, other: Verdict, beside: Estimate) -> bool:
    """Whether another setting is to be taken.

    It is where it alone meets the objective, or is better beyond what chance explains; on fewer
    parts than the chosen one's nobody can tell.

    Args:
        chosen: What would be taken without it.
        other: With the other setting.
        beside: The cost of the other one, times the chosen one's.
    """
    if other.failure or other.parts < chosen.parts:
        return False
    if chosen.meets:
        return other.meets and beside.high < 1
    return other.meets or other.missed.high < chosen.missed.low


def beside(row: Sequence[Row], other: Sequence[Row]) -> Estimate:
    """The cost of one policy, times another one's on the same parts."""
    costs = {each.cell: each.cost for each in other}
    common = [each for each in row if each.cell in costs]
    return ratio([each.cost for each in common], [costs[each.cell] for each in common])


def _verdict(policy: str, rows: Sequence[Row], allowed: float) -> Verdict:
    if failures := [row.failure for row in rows if row.failure]:
        unknown = (_UNKNOWN, _UNKNOWN, _UNKNOWN, _UNKNOWN)
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
    )


def _missed(missed: Sequence[float], requests: Sequence[float]) -> Estimate:
    """The share missed; of none in n there may be three in n (Hanley and Lippman-Hand, 1983).

    One part alone tells nothing of the others: its requests come from the same moments.
    """
    if not sum(requests) or (len(requests) == 1 and not sum(missed)):
        return Estimate(0.0, math.nan)
    return ratio(missed, requests) if sum(missed) else Estimate(0.0, _NONE_SEEN / sum(requests))
