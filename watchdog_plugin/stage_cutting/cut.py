"""Cuts a model at chosen points: where it can be cut, and the stages as models of their own.

A point will do if all that is handed over there has one row for each row of the input, in any
batch: only then can batches be joined and parted between stages. That is determined by running the
model with two sizes of batch, so nothing depends on what an exporter wrote down about shapes. Rows
may lie along any one axis, as recurrent layers have the steps of a sequence first: they are laid
first where they are handed over, and back where they are taken up.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from watchdog_plugin.stage_cutting.balance import HANDOVER_S, Point
from watchdog_plugin.stage_cutting.graph import Line, read_line, reads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from watchdog_plugin.protocols.tensors import Array, Arrays

__all__ = ["ROWS", "Cutter"]

_TENSORS_MAX = 3
_BYTES_PER_S = 2e9  # a tensor is laid out, copied, and laid out again
ROWS = (2, 3)
_IMAGE_RANK = 4
_ROWS_FIRST = "/rows"  # a tensor in the form that is handed over


class _Tensor(NamedTuple):
    """What is known of a tensor that could be handed over."""

    dtype: int
    dims: tuple[int | None, ...]  # without the one that counts rows
    row_bytes: int
    axis: int  # that counts rows


class Cutter:
    """Cuts one model.

    Args:
        model: the model, as onnx reads it.
        tries: two sets of inputs, of `ROWS` rows, other free dimensions different if they may be.
    """

    def __init__(self, model: Any, tries: tuple[Arrays, Arrays]) -> None:  # noqa: ANN401
        self._model = model
        self.line: Line = read_line(model)
        self._alive = self.line.alive()
        narrow = [names for names in self._alive[:-1] if len(names) <= _TENSORS_MAX]
        self._tensors = self._seen({name for names in narrow for name in names}, tries)

    def points(self, node_s: Sequence[float], dear: float = 1.0) -> list[Point]:
        """Where the model can be cut, the narrowest of those at the same time.

        Args:
            node_s: seconds of each node of the line.
            dear: what handing over is multiplied with: more of it, and cuts are narrower.
        """
        points: list[Point] = []
        at_s = 0.0
        for number, names in enumerate(self._alive[:-1]):
            at_s += node_s[number]
            carried = [self._tensors.get(name) for name in names]
            if not names or None in carried:
                continue
            row_bytes = sum(tensor.row_bytes for tensor in carried if tensor)
            handover_s = HANDOVER_S * len(names) + row_bytes / _BYTES_PER_S
            point = Point(number + 1, at_s, dear * handover_s)
            if points and points[-1].at_s == at_s:  # what takes no time is fused with the former
                point = min(point, points.pop(), key=lambda each: each.handover_s)
            points.append(point)
        return points

    def stages(self, points: Sequence[Point]) -> list[Any]:
        """The models between ``points``; what one makes and a later one reads has one name."""
        ends = [0, *(point.after for point in points), len(self.line.nodes)]
        return [self._stage(start, end) for start, end in pairwise(ends)]

    def _stage(self, start: int, end: int) -> Any:  # noqa: ANN401  onnx ships no types
        line, graph = self.line, self._model.graph
        nodes = line.nodes[start:end]
        made = {name for node in nodes for name in node.output if name}
        wanted = {name for node in nodes for name in reads(node)}
        given = line.inputs if start == 0 else self._alive[start - 1]
        left = line.outputs if end == len(line.nodes) else self._alive[end - 1]
        constants = line.constants_for(nodes)
        wanted.update(name for node in constants for name in reads(node))
        described = {entry.name: entry for entry in (*graph.input, *graph.output)}
        inputs, outputs = (
            [described.get(name) or self._described(name) for name in names]
            for names in (
                [name for name in given if name in wanted],
                [name for name in left if name in made],
            )
        )
        weights = [weight for name, weight in line.weights.items() if name in wanted]
        taken = [name for name in given if name in wanted and self._is_turned(name)]
        left = [name for name in left if name in made and self._is_turned(name)]
        nodes = self._laid_out(nodes, given if start else [])
        nodes = [*map(self._turned_back, taken), *nodes, *map(self._turned, left)]
        name = f"{graph.name}.{start}"
        part = helper.make_graph([*constants, *nodes], name, inputs, outputs, weights)
        return helper.make_model(
            part,
            opset_imports=self._model.opset_import,
            ir_version=self._model.ir_version,
            functions=self._model.functions,
        )

    def _laid_out(self, nodes: Sequence[Any], given: Sequence[str]) -> list[Any]:
        """``nodes`` such that the runtime fuses them as it does in the whole graph.

        On a CPU, ONNX Runtime lays images out in blocks of channels, and fuses a convolution with
        the sum and the activation behind it if all that is added is laid out so. It does that with
        what a convolution or a pool reads, not with what a sum does. A pool of single pixels
        changes nothing and makes it so: without, seven cuts of ResNet-50 cost twice as much.
        """
        added = {name for node in nodes if node.op_type in ("Add", "Sum") for name in node.input}
        images = [
            name
            for name in given
            if name in added
            and len(self._tensors[name].dims) == _IMAGE_RANK - 1
            and not self._tensors[name].axis
            and self._tensors[name].dtype == TensorProto.FLOAT
        ]
        if not images or not any(node.op_type == "Conv" for node in nodes):
            return list(nodes)
        pooled = {name: f"{name}/pooled" for name in images}
        pools = [
            helper.make_node("MaxPool", [name], [pooled[name]], kernel_shape=[1, 1])
            for name in images
        ]
        laid_out = []
        for node in nodes:
            copy = type(node)()
            copy.CopyFrom(node)
            copy.input[:] = [pooled.get(name, name) for name in node.input]
            laid_out.append(copy)
        return [*pools, *laid_out]

    def _is_turned(self, name: str) -> bool:
        """Whether its rows are along another axis than the first, which they are laid to."""
        return name in self._tensors and self._tensors[name].axis > 0

    def _turned(self, name: str) -> Any:  # noqa: ANN401  onnx ships no types
        """The node that lays rows first."""
        axes = list(range(len(self._tensors[name].dims) + 1))
        axes.insert(0, axes.pop(self._tensors[name].axis))
        return helper.make_node("Transpose", [name], [name + _ROWS_FIRST], perm=axes)

    def _turned_back(self, name: str) -> Any:  # noqa: ANN401  onnx ships no types
        """The node that lays them as they were."""
        axes = list(range(1, len(self._tensors[name].dims) + 1))
        axes.insert(self._tensors[name].axis, 0)
        return helper.make_node("Transpose", [name + _ROWS_FIRST], [name], perm=axes)

    def _described(self, name: str) -> Any:  # noqa: ANN401  onnx ships no types
        tensor = self._tensors[name]
        dims = [f"{name}.{axis}" if dim is None else dim for axis, dim in enumerate(tensor.dims, 1)]
        handed = name + _ROWS_FIRST if tensor.axis else name
        return helper.make_tensor_value_info(handed, tensor.dtype, ["batch", *dims])

    def _seen(self, names: set[str], tries: tuple[Arrays, Arrays]) -> dict[str, _Tensor]:
        """Those of ``names`` that have rows, by running the model."""
        first, second = (self._values(names, feeds) for feeds in tries)
        ends = {*self.line.inputs, *self.line.outputs}  # callers give and get them as they are
        seen = {}
        for name in names:
            value = first[name]
            axis = _row_axis(value.shape, second[name].shape)
            if axis is None or value.dtype == object or (axis and name in ends):
                continue
            dims = [
                one if one == other else None
                for one, other in zip(value.shape, second[name].shape, strict=True)
            ]
            del dims[axis]
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            seen[name] = _Tensor(kind, tuple(dims), value.nbytes // ROWS[0], axis)
        return seen

    def _values(self, names: set[str], feeds: Arrays) -> Mapping[str, Array]:
        """What the tensors called ``names`` are for these inputs."""
        known = {name: value for name, value in feeds.items() if name in names}
        asked = sorted(names - known.keys())
        if not asked:
            return known
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        outputs = {entry.name for entry in model.graph.output}
        model.graph.output.extend(
            helper.make_empty_tensor_value_info(name) for name in asked if name not in outputs
        )
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return known | dict(zip(asked, session.run(asked, dict(feeds)), strict=True))


def _row_axis(shape: tuple[int, ...], other: tuple[int, ...]) -> int | None:
    """The one axis that counts rows; None: none does, or several do, which could not be parted."""
    if len(shape) != len(other):
        return None
    found = [axis for axis, sizes in enumerate(zip(shape, other, strict=True)) if sizes == ROWS]
    return found[0] if len(found) == 1 else None
