"""What operators that were measured alone take in place, within a run of their model.

Between two runs of an operator, a model moves its weights and results through the caches. How much
that is decides whether an operator finds its weights there; so it counts if as much was moved
between the runs that were measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.predictor.fit import ThreadsAndGpu

if TYPE_CHECKING:
    from collections.abc import Iterable

    from carpool.predictor.graph import Case, Graph
    from carpool.predictor.profile import Alone

__all__ = ["MOST_MB", "Footprint", "composed"]

MOST_MB = 64  # beyond, no cache holds it
_BYTES_PER_MB = 1e6


class Footprint:
    """What the runs of a model touch between two runs of one of its operators.

    These are the weights of the others, and the memory of results, which is used again and again:
    as much as the operator with the largest ones takes and gives.

    Args:
        graph: The model.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[int, float] = {}

    def moved_mb(self, case: Case, batch: int) -> int:
        """What is moved before an operator runs again, as a power of two; 0 below a megabyte."""
        if batch not in self._known:
            self._known[batch] = self._whole_bytes(batch)
        whole_mb = int((self._known[batch] - _weights(case)) / _BYTES_PER_MB)
        return min(MOST_MB, 1 << (whole_mb.bit_length() - 1)) if whole_mb > 0 else 0

    def _whole_bytes(self, batch: int) -> float:
        cases = [(operator.at(batch), count) for operator, count in self._graph.alike]
        weights = sum(count * _weights(case) for case, count in cases)
        return weights + max((_results(case) for case, _ in cases), default=0.0)


def _weights(case: Case) -> float:
    """Bytes of constants that are read; a Gather reads as much as it gives."""
    if case.kind == "Gather":
        return 0.0
    return sum(form.size_bytes for form in case.inputs if form.constant)


def _results(case: Case) -> float:
    given = [form for form in case.inputs if not form.constant]
    return sum(form.size_bytes for form in (*given, *case.outputs))


def composed(graph: Graph, rows: Iterable[Alone]) -> dict[tuple[Case, ThreadsAndGpu], float]:
    """Seconds in place, by case and unit, of operators of a graph."""
    footprint = Footprint(graph)
    return {
        (row.case, ThreadsAndGpu(*row.setting[1:])): row.seconds
        for row in rows
        if row.moved_mb == footprint.moved_mb(row.case, row.setting.batch)
    }
