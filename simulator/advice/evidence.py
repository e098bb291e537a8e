"""Simulates policies on parts of a trace, within a limit of time: the same requests for all.

A policy that takes more than its share of the time on the first part is left out. After that, a
part that not all policies have finished when the time is over is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simulator.matrix.bound import lower_bound
from simulator.matrix.runs import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from simulator.advice.parts import Part
    from simulator.advice.question import Question
    from simulator.matrix.rows import Row

__all__ = ["Evidence", "Gatherer"]


class _Over(Exception):
    """The time is."""


@dataclass
class Evidence:
    """Its results.

    Attributes:
        rows: Of each policy the same parts, in the same order.
        unfinished: Policies that did not finish one part in their time.
    """

    rows: dict[str, list[Row]] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Gatherer:
    """Simulates.

    Attributes:
        question: What is asked.
        policies: Parameters by name, as a scenario has them.
        parts: Of the trace, in this order.
        now: The time, in seconds.
        tell: Is given a line as each run ends.
    """

    question: Question
    policies: Mapping[str, Mapping[str, Any]]
    parts: Sequence[Part]
    now: Callable[[], float]
    tell: Callable[[str], None]

    def gather(self, policies: Sequence[str], until: float) -> Evidence:
        """Each policy on as many parts as there is time for; ``until`` is a time of `now`.

        Raises:
            ConfigError: a policy that cannot be used.
        """
        found = Evidence({policy: [] for policy in policies})
        began = self.now()
        for number, part in enumerate(self.parts):
            took = (self.now() - began) / number if number else 0.0
            if self.now() + took > until or not found.rows:
                break
            rows = self._part(number, part, found, until)
            if len(rows) < len(found.rows):
                break
            for policy, row in rows.items():
                found.rows[policy].append(row)
        return found

    def _part(self, number: int, part: Part, found: Evidence, until: float) -> dict[str, Row]:
        scenario = self.question.scenario(part, self.policies)
        bound = lower_bound(scenario)
        rows: dict[str, Row] = {}
        left = list(found.rows)
        for policy in list(found.rows):
            share = (until - self.now()) / (1 if number else len(left))
            left.remove(policy)
            try:
                row = simulate(part.name, scenario, policy, bound, self._watch(self.now() + share))
            except _Over:
                if number:
                    return rows
                found.unfinished.append(policy)
                del found.rows[policy]
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
