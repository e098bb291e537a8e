"""Branches and loops: which of them have a predictable time, and how it is derived.

An If takes as long as one of its two branches. The iterations of a Scan, and of a Loop with a
count, follow from shapes or constants. Loops whose end depends on computed values are refused by
name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import helper

from carpool.errors import ConfigError, Problem
from carpool.onnx_graph.parts import attributes, graph_digests, subgraphs
from carpool.onnx_graph.single_node import known_from_shapes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from onnx import GraphProto, ModelProto, NodeProto

    from carpool.onnx_graph.parts import Attribute

__all__ = ["TAKEN", "branches", "refuse_open_ends", "unrolled"]

TAKEN = "taken"  # an attribute, not ONNX's: the branch that an If takes
_BRANCHES = ("then_branch", "else_branch")
_LOOP_FIXED = 2  # number of a Loop's inputs before the carried ones: count and condition


def branches(node: NodeProto) -> list[Mapping[str, Attribute]]:
    """Return the attributes of a node, for each branch that a run may take."""
    given: dict[str, Attribute] = attributes(node) | graph_digests(node)
    if node.op_type != "If":
        return [given]
    return [given | {TAKEN: branch} for branch in _BRANCHES]


def unrolled(node: NodeProto) -> list[NodeProto]:
    """Return the node; for a Loop, instead nodes from which the shapes of its results follow.

    Values carried by a Loop keep their shapes.
    """
    if node.op_type != "Loop":
        return [node]
    carried = zip(node.input[_LOOP_FIXED:], node.output, strict=False)
    return [helper.make_node("Identity", [old], [new]) for old, new in carried if new]


def refuse_open_ends(path: Path, model: ModelProto) -> None:
    """Refuse models with operators whose time depends on values.

    Args:
        path: File to name in the message.
        model: An optimised model.

    Raises:
        ConfigError: there is such an operator.
    """
    known = known_from_shapes(model)
    for node in model.graph.node:
        why = _open_end(node, known)
        if why:
            name = f"operator {node.op_type} ({node.name or 'unnamed'})"
            expected = "one whose execution time does not depend on values"
            fix = (
                f"{why}; carpool profile measures the whole model, and a latency table can have "
                "the result"
            )
            raise ConfigError([Problem(str(path), name, expected, fix)])


def _open_end(node: NodeProto, known: set[str]) -> str:
    """Return why a node's time depends on values beyond its own branch; empty if it does not."""
    if node.op_type == "SequenceMap":
        return "its number of steps is the length of its sequence"
    nested = {inner.op_type for graph in subgraphs(node) for inner in _every(graph)}
    if nested & {"If", "Loop", "SequenceMap"}:
        return "it contains another branch or loop"
    return _open_loop(node, known) if node.op_type == "Loop" else ""


def _open_loop(node: NodeProto, known: set[str]) -> str:
    body = next(subgraphs(node))
    if not node.input[0] or node.input[0] not in known:
        return "its number of iterations depends on values"
    if len(node.output) > len(node.input) - _LOOP_FIXED:
        return "the length of its result is its number of iterations"
    going_on, condition = body.output[0].name, body.input[1].name
    fixed = {tensor.name for tensor in body.initializer} | {condition}
    for inner in body.node:
        if inner.op_type in ("Identity", "Cast") and inner.input[0] in fixed:
            fixed.update(inner.output)
    return "" if going_on in fixed | known else "its end depends on values"


def _every(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from _every(inner)
