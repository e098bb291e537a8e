"""A model that the runtime optimises alike, and whose convolutions it need not copy one by one.

Fusing a normalisation into a convolution multiplies the weights, laying them out in blocks copies
them: most of the time that reading a graph takes, for numbers that are zeros here. Fused as the
addition that is left once the weights are multiplied, a normalisation leaves them as they are; and
what two convolutions share is laid out once. Knows no runtime.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from carpool.onnx_graph.onnx_file import OnnxFile, OnnxNode, Tensor
from carpool.onnx_graph.protobuf import bytes_field, fields, number_field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["lightened"]

_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME, _NODE_OPERATOR = 1, 2, 3, 4
_TENSOR_DIMS, _TENSOR_DATATYPE, _TENSOR_NAME = 1, 2, 8
_ELSEWHERE = "nowhere"  # where a constant's values are that has none of its own
_SHARED_DIMS = 4


def lightened(file: OnnxFile) -> OnnxFile:
    """The model with other constants: of the same forms where an operator remains."""
    tensors = dict(file.tensors)
    nodes = _sharing(_adding(file, tensors), tensors)
    used = {name for node in nodes for name in node.inputs}
    used |= {value.name for value in file.outputs}
    kept = {name: tensor for name, tensor in tensors.items() if name in used}
    return dataclasses.replace(file, nodes=nodes, tensors=kept)


def _adding(file: OnnxFile, tensors: dict[str, Tensor]) -> list[OnnxNode]:
    """Normalisations that follow a convolution as additions; the tensors gain what they add."""
    readers = Counter(name for node in file.nodes for name in node.inputs)
    readers.update(value.name for value in file.outputs)
    convolved = {
        node.outputs[0]
        for node in file.nodes
        if _is(node, "Conv") and readers[node.outputs[0]] == 1
    }
    nodes = []
    for node in file.nodes:
        foldable = _is(node, "BatchNormalization") and node.inputs[0] in convolved
        constants = node.inputs[1:]
        if foldable and len(node.outputs) == 1 and all(name in tensors for name in constants):
            scale = tensors[constants[0]]
            added = _constant(f"{node.outputs[0]} added", scale, (*scale.dims, 1, 1))
            tensors[added.name] = added
            nodes.append(_addition(node, added.name))
        else:
            nodes.append(node)
    return nodes


def _sharing(nodes: Sequence[OnnxNode], tensors: Mapping[str, Tensor]) -> list[OnnxNode]:
    """Convolutions with one constant for all weights of a form.

    Those of one input keep different ones: alike, they would be taken for one convolution.
    """
    readers = Counter(name for node in nodes for name in node.inputs)
    seen: Counter[tuple[str, tuple[int, ...]]] = Counter()
    first: defaultdict[tuple[int, tuple[int, ...], int], list[str]] = defaultdict(list)
    found = []
    for node in nodes:
        tensor = tensors.get(node.inputs[1]) if _is(node, "Conv") else None
        if tensor is None or readers[tensor.name] > 1 or len(tensor.dims) != _SHARED_DIMS:
            found.append(node)
            continue
        of_input = (node.inputs[0], tensor.dims)
        alike = first[tensor.datatype, tensor.dims, seen[of_input]]
        seen[of_input] += 1
        alike.append(tensor.name)
        found.append(_with_weights(node, alike[0]))
    return found


def _is(node: OnnxNode, operator: str) -> bool:
    """Whether it is one with what every such operator has: data, weights or a scale, a result."""
    known = node.operator == operator and node.domain in ("", "ai.onnx")
    return known and len(node.inputs) > 1 and len(node.outputs) > 0


def _with_weights(node: OnnxNode, name: str) -> OnnxNode:
    inputs = (node.inputs[0], name, *node.inputs[2:])
    parts = [bytes_field(_NODE_INPUT, each.encode()) for each in inputs]
    parts += [
        bytes(node.encoded[f.start : f.end])
        for f in fields(node.encoded)
        if f.number != _NODE_INPUT
    ]
    return dataclasses.replace(node, inputs=inputs, encoded=memoryview(b"".join(parts)))


def _addition(node: OnnxNode, added: str) -> OnnxNode:
    inputs = (node.inputs[0], added)
    texts = [(_NODE_INPUT, each) for each in inputs]
    texts += [(_NODE_OUTPUT, node.outputs[0]), (_NODE_NAME, node.name), (_NODE_OPERATOR, "Add")]
    encoded = b"".join(bytes_field(number, text.encode()) for number, text in texts)
    return OnnxNode(node.name, "Add", "", inputs, node.outputs, {}, (), memoryview(encoded))


def _constant(name: str, like: Tensor, dims: tuple[int, ...]) -> Tensor:
    parts = [number_field(_TENSOR_DIMS, size) for size in dims]
    parts += [
        number_field(_TENSOR_DATATYPE, like.datatype),
        bytes_field(_TENSOR_NAME, name.encode()),
    ]
    return Tensor(name, like.datatype, dims, _ELSEWHERE, memoryview(b"".join(parts)))
