"""Variable-length inputs: which requests share a run, how they are padded, and what that wastes.

An author declares the axis along which requests differ. Requests whose lengths fall into one bucket
are padded to the longest of them, in as many runs as needed to keep the share of padding below a
limit; outputs that have the input's length are cut back. Knows arrays, but neither the runtime nor
protocols.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from watchdog_plugin.protocols.tensors import Array, Arrays, Call, Shape

__all__ = ["SHORTEST_BUCKET", "Padding", "PaddingWaste"]

SHORTEST_BUCKET = 8


class PaddingWaste:
    """Number of useful and padded elements of ragged inputs in a batch's runs."""

    __slots__ = ("padded", "useful")

    def __init__(self) -> None:
        self.padded = 0
        self.useful = 0

    def __str__(self) -> str:
        return f"{self.padded}/{self.useful}"


@dataclass(frozen=True, slots=True)
class Padding:
    """How a model's ragged inputs are padded.

    Attributes:
        axes: For each ragged input, the axis along which its length differs; 0 is the batch axis.
        values: For each ragged input, the value that it is padded with.
        outputs: For each output to be cut back, its axis and the input whose length it has.
        buckets: Maximum lengths of the buckets, ascending; powers of two above the last.
        limit: Maximum share of padding in a run of several requests.
    """

    axes: Mapping[str, int]
    values: Mapping[str, object]
    outputs: Mapping[str, tuple[int, str]]
    buckets: tuple[int, ...] = ()
    limit: float = 0.5

    def groups(self, calls: Sequence[Call]) -> list[list[int]]:
        """Return the indices of ``calls``, grouped by the run they share."""
        buckets: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        for index, call in enumerate(calls):
            key = tuple(
                [self._bucketed(name, array) for name, array in sorted(call.inputs.items())]
            )
            buckets.setdefault(key, []).append(index)
        return [group for members in buckets.values() for group in self._split(calls, members)]

    def join(self, name: str, arrays: Sequence[Array]) -> Array:
        """Concatenate one input of several requests, each padded to the longest."""
        axis = self.axes.get(name)
        if axis is None or len({array.shape[axis] for array in arrays}) == 1:
            return np.concatenate(arrays)
        shape = list(arrays[0].shape)
        shape[0] = sum(len(array) for array in arrays)
        shape[axis] = max(array.shape[axis] for array in arrays)
        joined = np.full(shape, self.values[name], arrays[0].dtype)
        start = 0
        for array in arrays:
            rows = joined[start : start + len(array)]
            rows[_upto(array.shape[axis], axis)] = array
            start += len(array)
        return joined

    def cut(self, call: Call, feeds: Arrays, outputs: Arrays) -> Arrays:
        """Return a request's outputs, cut to its own length.

        Raises:
            ValueError: An output is not as long as the padded input.
        """
        whole = dict(outputs)
        for name, (axis, source) in self.outputs.items():
            fed = feeds[source].shape[self.axes[source]]
            if outputs[name].shape[axis] != fed:
                msg = (
                    f"output {name!r} has length {outputs[name].shape[axis]} along axis {axis}, "
                    f"but its input {source!r} has {fed}: expected equal lengths; "
                    "remove it from ragged_outputs"
                )
                raise ValueError(msg)
            length = call.inputs[source].shape[self.axes[source]]
            whole[name] = outputs[name][_upto(length, axis)]
        return whole

    def count(self, calls: Sequence[Call], feeds: Arrays, waste: PaddingWaste) -> None:
        """Add the elements of a run of ``calls`` to ``waste``."""
        useful = sum(self._useful(call) for call in calls)
        waste.useful += useful
        waste.padded += sum(feeds[name].size for name in self.axes) - useful

    def _useful(self, call: Call) -> int:
        return sum(call.inputs[name].size for name in self.axes)

    def _bucketed(self, name: str, array: Array) -> tuple[int, ...]:
        """Return the shape of a row, with a ragged length rounded up to its bucket."""
        axis = self.axes.get(name)
        if axis is None:
            rest: Shape = array.shape[1:]
            return rest
        length: int = array.shape[axis]
        at = bisect.bisect_left(self.buckets, length)
        if at < len(self.buckets):
            rounded = self.buckets[at]
        else:
            rounded = max(SHORTEST_BUCKET, 1 << (length - 1).bit_length() if length else 0)
        shape: Shape = array.shape
        return (*shape[1:axis], rounded, *shape[axis + 1 :])

    def _split(self, calls: Sequence[Call], members: Iterable[int]) -> list[list[int]]:
        """Assign calls to runs, longest first; start a new run if padding exceeds its limit."""
        groups: list[list[int]] = []
        rows, useful, longest = 0, 0, dict.fromkeys(self.axes, 0)
        for index in sorted(members, key=lambda index: self._lengths(calls[index]), reverse=True):
            call = calls[index]
            lengths = dict(zip(self.axes, self._lengths(call), strict=True))
            rows, useful = rows + call.rows, useful + self._useful(call)
            longest = {name: max(longest[name], lengths[name]) for name in self.axes}
            fed = rows * sum(self._width(call, name) * size for name, size in longest.items())
            if not groups or fed - useful > self.limit * fed:
                groups.append([])
                rows, useful, longest = call.rows, self._useful(call), lengths
            groups[-1].append(index)
        return groups

    def _lengths(self, call: Call) -> tuple[int, ...]:
        return tuple([call.inputs[name].shape[axis] for name, axis in self.axes.items()])

    def _width(self, call: Call, name: str) -> int:
        """Return the number of elements of an input per row and step along its ragged axis."""
        axis = self.axes[name]
        shape: Shape = call.inputs[name].shape
        return math.prod(shape[1:axis]) * math.prod(shape[axis + 1 :])


def _upto(length: int, axis: int) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, slice(length))
