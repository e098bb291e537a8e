"""Operators of a graph grouped by class, so that any batch size takes a few array operations."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from carpool.predictor.features import is_like_others, sized
from carpool.predictor.fit import cold_share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from carpool.predictor.fit import Fit, ThreadsAndGpu
    from carpool.predictor.graph import Graph, Operator

    Array = NDArray[np.float64]

__all__ = ["Group", "Groups"]

_Key = tuple[object, ...]
_UNTOLD_S = 1e-6
_PROBES = (2, 8)  # batch sizes that a size's line is drawn through


class Group(NamedTuple):
    """Operators of one class.

    Attributes:
        family: Family of the class.
        kind: The class.
        operators: The distinct operators.
        counts: Number of occurrences of each in the graph.
        base: Their sizes at batch size 0.
        each: Increase of the sizes per item of a batch.
    """

    family: str
    kind: str
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
        first: dict[_Key, Operator] = {operator.key: operator for operator, _ in graph.alike}
        counts: dict[_Key, int] = {operator.key: count for operator, count in graph.alike}
        self._key: list[_Key] = [operator.key for operator in graph.operators]
        together: defaultdict[tuple[str, str], list[_Key]] = defaultdict(list)
        lines: dict[_Key, tuple[Array, Array]] = {}
        for key, operator in first.items():
            found = [sized(operator.at(batch)) for batch in probes]
            together[found[0].family, found[0].kind].append(key)
            lines[key] = _line([np.array(f.sizes) for f in found], probes)
        self.all = [
            Group(
                family,
                kind,
                tuple(first[key] for key in keys),
                np.array([counts[key] for key in keys], float),
                np.stack([lines[key][0] for key in keys]),
                np.stack([lines[key][1] for key in keys]),
            )
            for (family, kind), keys in together.items()
        ]
        self._place = {
            key: (number, at)
            for number, keys in enumerate(together.values())
            for at, key in enumerate(keys)
        }
        moved = [self._moved_bytes(batch) for batch in probes]
        slope = (moved[1] - moved[0]) / (probes[1] - probes[0]) if len(probes) > 1 else 0.0
        self._traffic = (moved[0] - slope * probes[0], slope)

    def seconds(self, fit: Fit, unit: ThreadsAndGpu, batch: int) -> list[Array]:
        """Return the seconds of each group's operators; a microsecond each if there is no law."""
        cold = cold_share(self._traffic[0] + self._traffic[1] * batch)
        found = []
        for group in self.all:
            sizes = group.base + group.each * batch
            share = np.full(len(sizes), cold)
            seconds = fit.operator_seconds(group.kind, group.family, unit, sizes, share)
            found.append(np.full(len(sizes), _UNTOLD_S) if seconds is None else seconds)
        return found

    def longest_path_s(self, seconds: list[Array]) -> float:
        """Return the end of the last operator if each starts as soon as its inputs are ready."""
        ends: list[float] = []
        for key, operator in zip(self._key, self.graph.operators, strict=True):
            number, at = self._place[key]
            begin = max((ends[before] for before in operator.after), default=0.0)
            ends.append(begin + float(seconds[number][at]))
        return max(ends, default=0.0)

    def guessed(self, fit: Fit, unit: ThreadsAndGpu) -> list[bool]:
        """Return which groups are of a class that was never measured on the unit."""
        return [(group.kind, unit) not in fit.laws for group in self.all]

    def untold(self, fit: Fit, unit: ThreadsAndGpu) -> list[bool]:
        """Return which groups have no law on the unit, of neither their class nor their family."""
        return [
            (group.kind, unit) not in fit.laws
            and (
                (f"any {group.family}", unit) not in fit.laws
                or not is_like_others(group.operators[0].at(self._some_batch))
            )
            for group in self.all
        ]

    def place(self, position: int) -> tuple[int, int]:
        """Return the group of an operator of the graph, and its position in the group."""
        return self._place[self._key[position]]

    def _moved_bytes(self, batch: int) -> float:
        """Return the bytes of weights and results, as profiles count them."""
        moved = 0.0
        for operator, count in self.graph.alike:
            case = operator.at(batch)
            weights = sum(form.size_bytes for form in case.inputs if form.constant)
            moved += count * (weights + sum(form.size_bytes for form in case.outputs))
        return moved


def _line(sizes: list[Array], probes: tuple[int, ...]) -> tuple[Array, Array]:
    if len(probes) == 1:
        return sizes[0], np.zeros_like(sizes[0])
    each = (sizes[1] - sizes[0]) / (probes[1] - probes[0])
    return sizes[0] - each * probes[0], each
