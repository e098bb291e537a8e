"""In-place times of operators of a model, derived from operators that were measured alone.

Between two runs of an operator, a model moves its weights and results through the caches. The
amount decides whether an operator still finds its weights there, so a measurement counts only if as
much was moved between its runs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from carpool.predictor.fit import ThreadsAndGpu

if TYPE_CHECKING:
    from collections.abc import Iterable

    from carpool.onnx_graph.operator_graph import Case, Graph
    from carpool.predictor.profile import Alone

    Times = dict[tuple[Case, ThreadsAndGpu], float]

__all__ = ["MOST_MB", "Footprint", "composed"]

MOST_MB = 64  # no cache holds more
_BYTES_PER_MB = 1e6
_FEW_BYTES = 16_384  # of weights, read within a microsecond from anywhere


class Footprint:
    """Memory that a model touches between two runs of one of its operators.

    It consists of the weights of the other operators and of the memory for results, which is
    reused: as much as the operator with the largest inputs and outputs needs.

    Args:
        graph: The model.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[int, float] = {}

    def moved_mb(self, case: Case, batch: int) -> int:
        """Return the MB moved before an operator runs again; 0 below 1 MB.

        It is 0, too, for an operator with hardly any weights that it could find displaced.

        They are rounded up to a power of two: with less than a model moves, more of the operator's
        weights would be left in a cache that is slightly too small for all.
        """
        if (own := _weights(case)) < _FEW_BYTES:
            return 0
        if batch not in self._known:
            self._known[batch] = self._whole_bytes(batch)
        whole_mb = (self._known[batch] - own) / _BYTES_PER_MB
        return min(MOST_MB, 1 << math.ceil(math.log2(whole_mb))) if whole_mb >= 1 else 0

    def _whole_bytes(self, batch: int) -> float:
        cases = [(operator.at(batch), count) for operator, count in self._graph.alike]
        weights = sum(count * _weights(case) for case, count in cases)
        return weights + max((_results(case) for case, _ in cases), default=0.0)


def _weights(case: Case) -> float:
    """Return the bytes of constants that an operator reads, except those of a Gather.

    A Gather reads only as much as it outputs.
    """
    if case.op_type == "Gather":
        return 0.0
    return sum(tensor.size_bytes for tensor in case.inputs if tensor.constant)


def _results(case: Case) -> float:
    given = [tensor for tensor in case.inputs if not tensor.constant]
    return sum(tensor.size_bytes for tensor in (*given, *case.outputs))


def composed(graph: Graph, rows: Iterable[Alone]) -> Times:
    """Return the in-place seconds of operators of a graph, by case and unit.

    Args:
        graph: The model.
        rows: Operators measured alone.
    """
    footprint = Footprint(graph)
    return {
        (row.case, ThreadsAndGpu(*row.setting[1:])): row.seconds
        for row in rows
        if row.moved_mb == footprint.moved_mb(row.case, row.setting.batch)
    }
