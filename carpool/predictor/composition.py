"""In-place times of operators of a model, derived from operators that were measured alone.

Between two runs of an operator, a model moves its weights and results through the caches. The
amount decides whether an operator still finds its weights there, so a measurement counts only if as
much was moved between its runs.

On several threads, short operators take longer alone than in a model: the runtime's profiler, which
times them, adds microseconds to each operator that threads share, probably because the other
threads fall asleep meanwhile. In a model the calling thread does what no other one has begun, so
that a run is rarely much slower than on one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.predictor.fit import ThreadsAndGpu
from carpool.predictor.profile import Overhead

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from carpool.onnx_graph.operator_graph import Case, Graph
    from carpool.predictor.profile import Alone

    Times = dict[tuple[Case, ThreadsAndGpu], float]

__all__ = ["MOST_MB", "Footprint", "composed"]

MOST_MB = 64  # no cache holds more
_BYTES_PER_MB = 1e6
# A run on several threads is predicted to take at most this many times as long as on one. The limit
# was chosen on the models that benchmarks/results/operators_unseen.md lists as `chosen by`. It
# holds for 94 % of the 500 runs on two threads in the package's database, and for 83 % of those
# below 2 ms.
_SLOWEST = 1.2
_NOTHING = Overhead(0.0, 0.0)


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
        """Return the MB moved before an operator runs again, as a power of two; 0 below 1 MB."""
        if batch not in self._known:
            self._known[batch] = self._whole_bytes(batch)
        whole_mb = int((self._known[batch] - _weights(case)) / _BYTES_PER_MB)
        return min(MOST_MB, 1 << (whole_mb.bit_length() - 1)) if whole_mb > 0 else 0

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


def composed(graph: Graph, rows: Iterable[Alone], overheads: Mapping[int, Overhead]) -> Times:
    """Return the in-place seconds of operators of a graph, by case and unit.

    Args:
        graph: The model.
        rows: Operators measured alone.
        overheads: Overheads of runs by number of threads.
    """
    footprint = Footprint(graph)
    rows = [row for row in rows if row.moved_mb == footprint.moved_mb(row.case, row.setting.batch)]
    times = {(row.case, ThreadsAndGpu(*row.setting[1:])): row.seconds for row in rows}
    limited = dict(times)
    for batch, unit in {(row.setting.batch, ThreadsAndGpu(*row.setting[1:])) for row in rows}:
        for key, seconds in _limited(graph, batch, unit, times, overheads).items():
            limited[key] = min(seconds, limited[key])  # a case may be the same at several batches
    return limited


def _limited(
    graph: Graph, batch: int, unit: ThreadsAndGpu, times: Times, overheads: Mapping[int, Overhead]
) -> Times:
    """Return shorter times of operators on several threads where a run would be too slow."""
    one = ThreadsAndGpu(1, unit.gpu)
    if unit == one:
        return {}
    cases = [(operator.at(batch), count) for operator, count in graph.alike]
    both = [(case, n) for case, n in cases if (case, one) in times and (case, unit) in times]
    count = sum(n for _, n in both)
    run_s, besides_s = overheads.get(unit.threads, _NOTHING)
    one_run_s, one_besides_s = overheads.get(1, _NOTHING)
    spent_s = sum(n * times[case, unit] for case, n in both)
    one_s = sum(n * times[case, one] for case, n in both) + one_run_s + count * one_besides_s
    most_s = _SLOWEST * one_s - run_s - count * besides_s
    if not 0.0 < most_s < spent_s:
        return {}
    share = most_s / spent_s
    return {(case, unit): share * times[case, unit] for case, _ in both}
