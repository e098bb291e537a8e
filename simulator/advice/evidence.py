"""Simulate policies on parts of a trace within a time budget, with the same requests for each.

A policy that takes more than its share of the budget on the first part is left out. After that, a
part counts only if all remaining policies have finished it when the budget is used up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simulator.matrix.bound import lower_bound
from simulator.matrix.runs import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from simulator.advice.question import Question
    from simulator.advice.trace_parts import Part
    from simulator.matrix.rows import Row

__all__ = ["Evidence", "Gatherer"]


class _Over(Exception):
    """Raised when the time budget is used up."""


@dataclass
class Evidence:
    """Results of the simulated policies.

    Attributes:
        rows: For each policy, results of the same parts in the same order.
        unfinished: Policies that did not finish one part in their share of the time.
    """

    rows: dict[str, list[Row]] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Gatherer:
    """Runs the simulations.

    Attributes:
        question: The trace, model, objective and prices.
        policies: Policy parameters by name, as in a scenario.
        parts: Parts of the trace, simulated in this order.
        now: Clock, in seconds.
        tell: Called with a line of text after each run.
    """

    question: Question
    policies: Mapping[str, Mapping[str, Any]]
    parts: Sequence[Part]
    now: Callable[[], float]
    tell: Callable[[str], None]

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
        bound = lower_bound(scenario)
        rows: dict[str, Row] = {}
        left = list(evidence.rows)
        for policy in list(evidence.rows):
            share = (until - self.now()) / (1 if number else len(left))
            left.remove(policy)
            try:
                row = simulate(part.name, scenario, policy, bound, self._watch(self.now() + share))
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

    def _watch(self, until: float) -> Callable[[float], None]:
        def check(_: float) -> None:
            if self.now() > until:
                raise _Over

        return check
