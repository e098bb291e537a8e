"""Cuts a model: finds where it can be cut, and makes the stages as models of their own.

A point is suitable if all tensors handed over there have one row for each row of the input, in any
batch: only then can batches be merged and split between stages. That is determined by running the
model with two batch sizes, so that it does not depend on the shapes declared by an exporter. Rows
may lie along any one axis, as recurrent layers have the steps of a sequence first: the axis is
moved first at the end of a stage, and back at the start of the next.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from watchdog_plugin.stage_cutting.balance import HANDOVER_S, Point
from watchdog_plugin.stage_cutting.node_sequence import NodeSequence, read_sequence, reads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from watchdog_plugin.protocols.tensors import Array, Arrays

__all__ = ["ROWS", "Cutter"]

_TENSORS_MAX = 3
_BYTES_PER_S = 2e9  # rate at which a tensor is converted, copied and converted back
ROWS = (2, 3)
_IMAGE_RANK = 4
_ROWS_FIRST = "/rows"  # suffix of a tensor's name in the form that is handed over


class _Tensor(NamedTuple):
    """Properties of a tensor that could be handed over."""

    dtype: int
    dims: tuple[int | None, ...]  # without the one that counts rows
    row_bytes: int
    axis: int  # that counts rows


class Cutter:
    """Cuts one model.

    Args:
        model: The model, as an onnx object.
        tries: Two sets of inputs, of `ROWS` rows, with different sizes of other free dimensions if
            possible.
    """

    def __init__(self, model: Any, tries: tuple[Arrays, Arrays]) -> None:  # noqa: ANN401
        self._model = model
        self.sequence: NodeSequence = read_sequence(model)
        self._alive = self.sequence.alive()
        narrow = [names for names in self._alive[:-1] if len(names) <= _TENSORS_MAX]
        self._tensors = self._seen({name for names in narrow for name in names}, tries)

    def points(self, node_s: Sequence[float], handover_weight: float = 1.0) -> list[Point]:
        """Return where the model can be cut; of points at the same time, only the narrowest.

        Args:
            node_s: Seconds of each node of the sequence.
            handover_weight: Factor of handover costs; larger values prefer narrower cuts.
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
            point = Point(number + 1, at_s, handover_weight * handover_s)
            if points and points[-1].at_s == at_s:  # what takes no time is fused with the former
                point = min(point, points.pop(), key=lambda each: each.handover_s)
            points.append(point)
        return points

    def stages(self, points: Sequence[Point]) -> list[Any]:
        """Return the models between ``points``; a tensor handed over has one name in all stages."""
        ends = [0, *(point.after for point in points), len(self.sequence.nodes)]
        return [self._stage(start, end) for start, end in pairwise(ends)]

    def _stage(self, start: int, end: int) -> Any:  # noqa: ANN401  onnx ships no types
        sequence, graph = self.sequence, self._model.graph
        nodes = sequence.nodes[start:end]
        made = {name for node in nodes for name in node.output if name}
        wanted = {name for node in nodes for name in reads(node)}
        given = sequence.inputs if start == 0 else self._alive[start - 1]
        left = sequence.outputs if end == len(sequence.nodes) else self._alive[end - 1]
        constants = sequence.constants_for(nodes)
        wanted.update(name for node in constants for name in reads(node))
        described = {entry.name: entry for entry in (*graph.input, *graph.output)}
        inputs, outputs = (
            [described.get(name) or self._described(name) for name in names]
            for names in (
                [name for name in given if name in wanted],
                [name for name in left if name in made],
            )
        )
        weights = [weight for name, weight in sequence.weights.items() if name in wanted]
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
        """Return ``nodes``, changed so that the runtime fuses them as in the whole graph.

        On a CPU, ONNX Runtime stores images in blocks of channels, and fuses a convolution with the
        sum and the activation after it if all terms are stored that way. It converts the inputs of
        a convolution or a pool, but not those of a sum. A pool of single pixels, which changes no
        value, makes it convert them: without it, seven cuts of ResNet-50 cost twice as much.
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
        """Return whether its rows are not along the first axis, so that it has to be transposed."""
        return name in self._tensors and self._tensors[name].axis > 0

    def _turned(self, name: str) -> Any:  # noqa: ANN401  onnx ships no types
        """Return the node that moves the row axis first."""
        axes = list(range(len(self._tensors[name].dims) + 1))
        axes.insert(0, axes.pop(self._tensors[name].axis))
        return helper.make_node("Transpose", [name], [name + _ROWS_FIRST], perm=axes)

    def _turned_back(self, name: str) -> Any:  # noqa: ANN401  onnx ships no types
        """Return the node that moves the row axis back."""
        axes = list(range(1, len(self._tensors[name].dims) + 1))
        axes.insert(self._tensors[name].axis, 0)
        return helper.make_node("Transpose", [name + _ROWS_FIRST], [name], perm=axes)

    def _described(self, name: str) -> Any:  # noqa: ANN401  onnx ships no types
        tensor = self._tensors[name]
        dims = [f"{name}.{axis}" if dim is None else dim for axis, dim in enumerate(tensor.dims, 1)]
        handed = name + _ROWS_FIRST if tensor.axis else name
        return helper.make_tensor_value_info(handed, tensor.dtype, ["batch", *dims])

    def _seen(self, names: set[str], tries: tuple[Arrays, Arrays]) -> dict[str, _Tensor]:
        """Return the tensors among ``names`` that have rows, by running the model."""
        first, second = (self._values(names, feeds) for feeds in tries)
        ends = {
            *self.sequence.inputs,
            *self.sequence.outputs,
        }  # callers give and get them as they are
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
            element_type = helper.np_dtype_to_tensor_dtype(value.dtype)
            seen[name] = _Tensor(element_type, tuple(dims), value.nbytes // ROWS[0], axis)
        return seen

    def _values(self, names: set[str], feeds: Arrays) -> Mapping[str, Array]:
        """Return the values of the tensors called ``names`` for these inputs."""
        known = {name: value for name, value in feeds.items() if name in names}
        names_read = sorted(names - known.keys())
        if not names_read:
            return known
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        outputs = {entry.name for entry in model.graph.output}
        model.graph.output.extend(
            helper.make_empty_tensor_value_info(name) for name in names_read if name not in outputs
        )
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return known | dict(zip(names_read, session.run(names_read, dict(feeds)), strict=True))


def _row_axis(shape: tuple[int, ...], other: tuple[int, ...]) -> int | None:
    """Return the axis that counts rows; None if there is none, or several, which prevent splits."""
    if len(shape) != len(other):
        return None
    axes = [axis for axis, sizes in enumerate(zip(shape, other, strict=True)) if sizes == ROWS]
    return axes[0] if len(axes) == 1 else None
