"""Matches timed operators with those of the graph.

The graph and the timed session come from two loads of a model. The operators that the runtime's
optimiser adds are named and ordered differently in each load.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.onnx_graph.operator_graph import Case, Graph
    from watchdog_plugin.profiling.profiled_session import OperatorTimes

__all__ = ["matched"]


def matched(graph: Graph, cases: Sequence[Case], run: OperatorTimes) -> list[float] | None:
    """Return the seconds of each operator of the graph, by its name or else by its shapes.

    Operators of one type and shape are interchangeable. None if an operator was not timed.
    """
    wanted = [_likeness(case) for case in cases]
    of_name = {
        operator.name: alike for operator, alike in zip(graph.operators, wanted, strict=True)
    }
    named: dict[str, float] = {}
    others: defaultdict[object, list[float]] = defaultdict(list)
    for timed in run:
        if of_name.get(timed.name) == (timed.op_type, timed.shapes):
            named[timed.name] = timed.seconds
        else:
            others[timed.op_type, timed.shapes].append(timed.seconds)
    times = []
    for operator, alike in zip(graph.operators, wanted, strict=True):
        if operator.name in named:
            times.append(named[operator.name])
        elif others[alike]:
            times.append(others[alike].pop())
        else:
            return None
    return times


def _likeness(case: Case) -> tuple[str, tuple[tuple[int, ...], ...]]:
    shapes = tuple(tensor.shape for tensor in (*case.inputs[:1], *case.outputs))
    return case.op_type.rpartition(".")[2], shapes
