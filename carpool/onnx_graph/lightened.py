"""Changes a model so that the runtime optimises it faster, to the same graph.

Fusing a normalisation into a convolution multiplies the weights, and laying them out in blocks
copies them. This is most of the time of reading a graph, although all weights are zeros here. So a
normalisation after a convolution is replaced by the addition that fusion leaves of it, and
convolutions with weights of the same shape share one constant, which is laid out only once. Does
not use the runtime.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from onnx import NodeProto, TensorProto, helper

from carpool.onnx_graph.parts import taken, without_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import GraphProto

__all__ = ["lightened"]

_SHARED_DIMS = 4


def lightened(graph: GraphProto) -> tuple[list[NodeProto], list[TensorProto]]:
    """Return the graph's nodes and constants, some replaced by ones that are faster to optimise."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    nodes = _sharing(_adding(graph, tensors), tensors)
    used = {name for node in nodes for name in taken(node)}
    used |= {value.name for value in graph.output}
    return nodes, [tensor for name, tensor in tensors.items() if name in used]


def _adding(graph: GraphProto, tensors: dict[str, TensorProto]) -> list[NodeProto]:
    """Replace normalisations after convolutions by additions, with new constants in ``tensors``."""
    readers = Counter(name for node in graph.node for name in taken(node))
    readers.update(value.name for value in graph.output)
    convolved = {
        node.output[0] for node in graph.node if _is(node, "Conv") and readers[node.output[0]] == 1
    }
    nodes = []
    for node in graph.node:
        foldable = _is(node, "BatchNormalization") and node.input[0] in convolved
        constants = node.input[1:]
        if foldable and len(node.output) == 1 and all(name in tensors for name in constants):
            scale, name = tensors[constants[0]], f"{node.output[0]} added"
            tensors[name] = without_value(name, scale, (*scale.dims, 1, 1))
            ends = [node.input[0], name], [node.output[0]]
            nodes.append(helper.make_node("Add", *ends, name=node.name))
        else:
            nodes.append(node)
    return nodes


def _sharing(nodes: Sequence[NodeProto], tensors: Mapping[str, TensorProto]) -> list[NodeProto]:
    """Return the nodes, with convolutions sharing one constant for all weights of a shape.

    Convolutions of one input keep different constants, or they would be merged into one.
    """
    readers = Counter(name for node in nodes for name in taken(node))
    seen: Counter[tuple[str, tuple[int, ...]]] = Counter()
    first: defaultdict[tuple[int, tuple[int, ...], int], list[str]] = defaultdict(list)
    shared = []
    for node in nodes:
        tensor = tensors.get(node.input[1]) if _is(node, "Conv") else None
        if tensor is None or readers[tensor.name] > 1 or len(tensor.dims) != _SHARED_DIMS:
            shared.append(node)
            continue
        dims = tuple(tensor.dims)
        of_input = (node.input[0], dims)
        alike = first[tensor.data_type, dims, seen[of_input]]
        seen[of_input] += 1
        alike.append(tensor.name)
        shared.append(_with_weights(node, alike[0]))
    return shared


def _is(node: NodeProto, operator: str) -> bool:
    """Return whether ``node`` is an ``operator`` with at least two inputs and one output."""
    known = node.op_type == operator and node.domain in ("", "ai.onnx")
    return known and len(node.input) > 1 and len(node.output) > 0


def _with_weights(node: NodeProto, name: str) -> NodeProto:
    other = NodeProto()
    other.CopyFrom(node)
    other.input[1] = name
    return other
