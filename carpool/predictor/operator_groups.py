"""Operators of a graph grouped by class, so that any batch size takes a few array operations."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from carpool.predictor.features import is_like_others, sized
from carpool.predictor.fit import cold_share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from carpool.onnx_graph.operator_graph import Graph, Operator
    from carpool.predictor.fit import Fit, ThreadsAndGpu

    Array = NDArray[np.float64]

__all__ = ["Group", "Groups"]

_UNKNOWN_S = 1e-6
_PROBES = (2, 8)  # batch sizes from which the line of a size over the batch is determined


class Group(NamedTuple):
    """Operators of one class.

    Attributes:
        family: Family of the class.
        operator_class: The class.
        operators: The distinct operators.
        counts: Number of occurrences of each in the graph.
        base: Their sizes at batch size 0.
        each: Increase of the sizes per item of a batch.
    """

    family: str
    operator_class: str
    operators: tuple[Operator, ...]
    counts: Array
    base: Array
    each: Array


class Groups:
    """Operators of a graph, in groups.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        probes = _PROBES if graph.fixed_batch is None else (graph.fixed_batch,)
        self._some_batch = probes[0]
        together: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        sizes: list[list[tuple[float, ...]]] = []
        for position, (operator, _) in enumerate(graph.alike):
            probed = [sized(operator.at(batch)) for batch in probes]
            together[probed[0].family, probed[0].operator_class].append(position)
            sizes.append([each.sizes for each in probed])
        self.all = [
            Group(
                family,
                operator_class,
                tuple(graph.alike[position][0] for position in some),
                np.array([graph.alike[position][1] for position in some], float),
                *_line(np.array([sizes[position] for position in some], float), probes),
            )
            for (family, operator_class), some in together.items()
        ]
        self._places = {
            position: (number, at)
            for number, some in enumerate(together.values())
            for at, position in enumerate(some)
        }
        moved = [self._moved_bytes(batch) for batch in probes]
        slope = (moved[1] - moved[0]) / (probes[1] - probes[0]) if len(probes) > 1 else 0.0
        self._traffic = (moved[0] - slope * probes[0], slope)

    def seconds(self, fit: Fit, unit: ThreadsAndGpu, batch: int) -> list[Array]:
        """Return the seconds of each group's operators; a microsecond each if there is no law."""
        cold = cold_share(self._traffic[0] + self._traffic[1] * batch)
        by_group = []
        for group in self.all:
            sizes = group.base + group.each * batch
            share = np.full(len(sizes), cold)
            seconds = fit.operator_seconds(group.operator_class, group.family, unit, sizes, share)
            by_group.append(np.full(len(sizes), _UNKNOWN_S) if seconds is None else seconds)
        return by_group

    def longest_path_s(self, seconds: list[Array]) -> float:
        """Return the end of the last operator if each starts as soon as its inputs are ready."""
        ends: list[float] = []
        for position, operator in enumerate(self.graph.operators):
            number, at = self.place(position)
            begin = max((ends[before] for before in operator.after), default=0.0)
            ends.append(begin + float(seconds[number][at]))
        return max(ends, default=0.0)

    def guessed(self, fit: Fit, unit: ThreadsAndGpu) -> list[bool]:
        """Return which groups are of a class that was never measured on the unit."""
        return [(group.operator_class, unit) not in fit.laws for group in self.all]

    def lacks_law(self, fit: Fit, unit: ThreadsAndGpu) -> list[bool]:
        """Return which groups have no law on the unit, of neither their class nor their family."""
        return [
            (group.operator_class, unit) not in fit.laws
            and (
                (f"any {group.family}", unit) not in fit.laws
                or not is_like_others(group.operators[0].at(self._some_batch))
            )
            for group in self.all
        ]

    def place(self, position: int) -> tuple[int, int]:
        """Return the group of an operator of the graph, and its position in the group."""
        return self._places[self.graph.numbers[position]]

    def _moved_bytes(self, batch: int) -> float:
        """Return the bytes of weights and results, as profiles count them."""
        moved = 0.0
        for operator, count in self.graph.alike:
            case = operator.at(batch)
            weights = sum(tensor.size_bytes for tensor in case.inputs if tensor.constant)
            moved += count * (weights + sum(tensor.size_bytes for tensor in case.outputs))
        return moved


def _line(sizes: Array, probes: tuple[int, ...]) -> tuple[Array, Array]:
    """Return sizes at batch size 0 and the increase per item, of operators by probes by sizes."""
    first, last = sizes[:, 0], sizes[:, -1]
    each = (last - first) / max(1, probes[-1] - probes[0])
    return first - each * probes[0], each
