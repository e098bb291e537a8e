"""Simulate policies on parts of a trace within a time budget, with the same requests for each.

What takes more than its share of the budget on the first part is left out, be it a policy or the
lower bound. After that, a part counts only if all the rest has finished when the budget is used up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simulator.matrix.bound import lower_bound
from simulator.matrix.runs import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from scaler.scenarios.scenario import Scenario
    from simulator.advice.question import Question
    from simulator.advice.trace_parts import Part
    from simulator.matrix.rows import Row

__all__ = ["BOUND", "Evidence", "Gatherer"]

BOUND = "the lower bound"


class _Over(Exception):
    """Raised when the time budget is used up."""


@dataclass
class Evidence:
    """Results of the simulated policies.

    Attributes:
        rows: For each policy, results of the same parts in the same order.
        unfinished: Policies that did not finish one part in their share of the time, and `BOUND` if
            the lower bound did not.
        done: The largest fraction of a part that any policy finished.
    """

    rows: dict[str, list[Row]] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)
    done: float = 0.0


@dataclass(frozen=True)
class Gatherer:
    """Runs the simulations.

    Attributes:
        question: The trace, model, objective and prices.
        policies: Policy parameters by name, as in a scenario.
        parts: Parts of the trace, simulated in this order.
        now: Clock, in seconds.
        tell: Called with a line of text after each run.
        bounds: Known lower bounds by part; NaN for those that took too long.
    """

    question: Question
    policies: Mapping[str, Mapping[str, Any]]
    parts: Sequence[Part]
    now: Callable[[], float]
    tell: Callable[[str], None]
    bounds: dict[str, float] = field(default_factory=dict)

    def gather(self, policies: Sequence[str], until: float) -> Evidence:
        """Simulate each policy on as many parts as fit before ``until``, a time of `now`.

        Raises:
            ConfigError: a policy that cannot be used.
        """
        evidence = Evidence({policy: [] for policy in policies})
        began = self.now()
        for number, part in enumerate(self.parts):
            took = (self.now() - began) / number if number else 0.0
            if self.now() + took > until or not evidence.rows:
                break
            rows = self._part(number, part, evidence, until)
            if len(rows) < len(evidence.rows):
                break
            for policy, row in rows.items():
                evidence.rows[policy].append(row)
        return evidence

    def _part(self, number: int, part: Part, evidence: Evidence, until: float) -> dict[str, Row]:
        scenario = self.question.scenario(part, self.policies)
        left = list(evidence.rows)
        share = (until - self.now()) / (1 if number else 1 + len(left))
        try:
            bound = self._bound(scenario, part, self.now() + share)
        except _Over:
            if number:
                return {}
            bound = self.bounds[part.name] = math.nan
            evidence.unfinished.append(BOUND)
        rows: dict[str, Row] = {}
        for policy in list(evidence.rows):
            share = (until - self.now()) / (1 if number else len(left))
            left.remove(policy)
            try:
                watch = self._watch(self.now() + share, evidence)
                row = simulate(part.name, scenario, policy, bound, watch)
            except _Over:
                if number:
                    return rows
                evidence.unfinished.append(policy)
                del evidence.rows[policy]
                continue
            rows[policy] = row
            came = row.failure or f"cost {row.cost:.4g}, {row.missed:.2%} missed"
            self.tell(f"part {number + 1} of {len(self.parts)}, {policy}: {came}")
        return rows

    def _bound(self, scenario: Scenario, part: Part, until: float) -> float:
        if any(map(math.isnan, self.bounds.values())):
            return math.nan  # the others would take as long
        if part.name not in self.bounds:
            self.bounds[part.name] = lower_bound(scenario, self._watch(until))
        return self.bounds[part.name]

    def _watch(self, until: float, evidence: Evidence | None = None) -> Callable[[float], None]:
        """Return a callback that stops at a time, and notes how far the simulation came."""

        def check(done: float) -> None:
            if evidence:
                evidence.done = max(evidence.done, done)
            if self.now() > until:
                raise _Over

        return check
