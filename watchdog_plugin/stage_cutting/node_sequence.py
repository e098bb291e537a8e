"""An ONNX graph as a sequence of nodes, and the tensors that are live between any two of them.

Nodes keep the order of the file, which ONNX requires to be topological. Constants and everything
computed from constants alone can be in several stages, so they are never handed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["NodeSequence", "read_sequence"]


@dataclass(frozen=True, slots=True)
class NodeSequence:
    """The graph's nodes.

    Attributes:
        nodes: Nodes that depend on an input, in order of execution.
        constants: Nodes that depend on no input, in order of execution.
        weights: Initializers by name.
        inputs: Names of the inputs, without initializers.
        outputs: Names of the outputs.
    """

    nodes: list[Any]
    constants: list[Any]
    weights: dict[str, Any]
    inputs: list[str]
    outputs: list[str]

    def alive(self) -> list[list[str]]:
        """Return, for each node, the names handed over from it and earlier nodes to later ones.

        They include inputs of the graph that are used later, and outputs that were made before.
        """
        last = dict.fromkeys(self.outputs, len(self.nodes))
        for number, node in enumerate(self.nodes):
            for name in reads(node):
                last[name] = max(last.get(name, 0), number)
        current = list(self.inputs)
        alive = []
        for number, node in enumerate(self.nodes):
            current += [name for name in node.output if name]
            current = [name for name in current if last.get(name, -1) > number]
            alive.append(list(current))
        return alive

    def constants_for(self, nodes: Iterable[Any]) -> list[Any]:
        """Return the constant nodes that ``nodes`` need, in order."""
        wanted = {name for node in nodes for name in reads(node)}
        chosen = []
        for node in reversed(self.constants):
            if wanted.intersection(node.output):
                wanted.update(reads(node))
                chosen.append(node)
        return chosen[::-1]


def read_sequence(model: Any) -> NodeSequence:  # noqa: ANN401  onnx ships no types
    """Return the nodes of ``model``."""
    graph = model.graph
    weights = {weight.name: weight for weight in graph.initializer}
    weights |= {weight.values.name: weight for weight in graph.sparse_initializer}
    inputs = [entry.name for entry in graph.input if entry.name not in weights]
    moving = set(inputs)
    nodes, constants = [], []
    for node in graph.node:
        random = node.op_type.startswith("Random")  # two stages would draw two numbers
        if random or moving.intersection(reads(node)):
            nodes.append(node)
            moving.update(node.output)
        else:
            constants.append(node)
    return NodeSequence(nodes, constants, weights, inputs, [entry.name for entry in graph.output])


def reads(node: Any) -> Iterator[str]:  # noqa: ANN401  onnx ships no types
    """Yield the names that a node reads, including those read by its subgraphs."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            own = {name for each in inner.node for name in each.output}
            own.update(entry.name for entry in (*inner.input, *inner.initializer))
            for each in inner.node:
                yield from (name for name in reads(each) if name not in own)
            yield from (out.name for out in inner.output if out.name not in own)
