"""Matches the operators that were timed with those of the graph.

The graph and the timed session come of two loads of a model. What the runtime's optimiser adds is
named and ordered again with each.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.predictor.graph import Case, Graph
    from watchdog_plugin.profiling.session import OperatorTimes

__all__ = ["matched"]


def matched(graph: Graph, cases: Sequence[Case], run: OperatorTimes) -> list[float] | None:
    """Seconds of each operator of the graph: by its name, or by its shapes where names do not last.

    Operators of one kind and shape are alike, so which of them is which does not matter.
    """
    wanted = [_likeness(case) for case in cases]
    of_name = {
        operator.name: alike for operator, alike in zip(graph.operators, wanted, strict=True)
    }
    named: dict[str, float] = {}
    others: defaultdict[object, list[float]] = defaultdict(list)
    for timed in run:
        if of_name.get(timed.name) == (timed.kind, timed.shapes):
            named[timed.name] = timed.seconds
        else:
            others[timed.kind, timed.shapes].append(timed.seconds)
    found = []
    for operator, alike in zip(graph.operators, wanted, strict=True):
        if operator.name in named:
            found.append(named[operator.name])
        elif others[alike]:
            found.append(others[alike].pop())
        else:
            return None
    return found


def _likeness(case: Case) -> tuple[str, tuple[tuple[int, ...], ...]]:
    shapes = tuple(form.shape for form in (*case.inputs[:1], *case.outputs))
    return case.kind.rpartition(".")[2], shapes
