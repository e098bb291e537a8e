"""A model as the scheduler sees it: a sequence of nodes, some of them in loops, with their times.

A node is static and runs once, or belongs to an encoder and runs once for each element of the
input, or to a decoder and runs until the sequence is done (the three types of Algorithm 1).
Consecutive nodes of one type are the body of one loop.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Block", "Node", "NodeType", "Program", "RemainingRuns", "in_equal_parts"]
__all__ += ["most_batches"]

_RUNNING_PER_WAITING = 2  # one more request may wait to be admitted for every two that run


def most_batches(batch_max: int) -> int:
    """Return how many batches an instance with the executor `lazy` accepts at once."""
    return batch_max + -(-batch_max // _RUNNING_PER_WAITING)


class NodeType(enum.Enum):
    """Kind of a node: how often it runs for a request."""

    STATIC = "static"
    ENCODER = "encoder"
    DECODER = "decoder"

    __hash__ = object.__hash__  # by identity: asked at every boundary


@dataclass(frozen=True, slots=True)
class Node:
    """One stage of a model.

    Attributes:
        seconds: Seconds by batch size, from 1 to the largest.
        node_type: How often it runs.
    """

    seconds: Sequence[float]
    node_type: NodeType = NodeType.STATIC


class RemainingRuns(NamedTuple):
    """How often a request will still run through its loops, including the current run."""

    encoder: int = 1
    decoder: int = 1


class Block(NamedTuple):
    """Nodes ``start`` to ``end`` of one type."""

    start: int
    end: int
    node_type: NodeType


class Program:
    """One model.

    Args:
        name: Name that identifies the model.
        nodes: At least one, all with the same number of batch sizes.

    Attributes:
        batch_max: Most rows in one batch.
    """

    def __init__(self, name: str, nodes: Sequence[Node]) -> None:
        self.name = name
        self.batch_max = len(nodes[0].seconds)
        if any(len(node.seconds) != self.batch_max for node in nodes):
            msg = f"{name}: expected the seconds of as many batch sizes for every node"
            raise ValueError(msg)
        self._nodes = len(nodes)
        node_types = [node.node_type for node in nodes]
        self.blocks: list[Block] = []
        for node_type, members in groupby(range(len(nodes)), lambda number: node_types[number]):
            numbers = list(members)
            self.blocks.append(Block(numbers[0], numbers[-1] + 1, node_type))
        self._block_of = [block for block in self.blocks for _ in range(block.start, block.end)]
        # _before[size - 1][node]: seconds of all nodes before it, each run once.
        self._before = [
            list(accumulate((node.seconds[index] for node in nodes), initial=0.0))
            for index in range(self.batch_max)
        ]
        self._terms: dict[tuple[int, int], tuple[float, float, float]] = {}

    def __len__(self) -> int:
        return self._nodes

    def __repr__(self) -> str:
        return f"Program({self.name!r})"

    def block(self, node: int) -> Block:
        """Return the loop, or the run of static nodes, that ``node`` belongs to."""
        return self._block_of[node]

    def node_s(self, node: int, size: int) -> float:
        """Return the seconds of one node for a batch of ``size``."""
        before = self._before[size - 1]
        return before[node + 1] - before[node]

    def seconds(self, node: int, left: RemainingRuns, size: int = 1) -> float:
        """Return the seconds from ``node`` to the end in a batch of ``size``."""
        static_s, encoder_s, decoder_s = self.terms(node, size)
        return static_s + left[0] * encoder_s + left[1] * decoder_s

    def terms(self, node: int, size: int) -> tuple[float, float, float]:
        """Return the seconds from ``node`` on of static nodes, and of one run of each loop."""
        known = self._terms.get((node, size))
        if known is None:
            before = self._before[size - 1]
            spent = dict.fromkeys(NodeType, 0.0)
            for start, end, node_type in self.blocks:
                if end > node:
                    spent[node_type] += before[end] - before[start]
            block = self._block_of[node]
            spent[NodeType.STATIC] -= before[node] - before[block.start]
            known = spent[NodeType.STATIC], spent[NodeType.ENCODER], spent[NodeType.DECODER]
            self._terms[node, size] = known
        return known

    def until(self, node: int, left: RemainingRuns, goal: int, size: int) -> float | None:
        """Return the seconds from ``node`` until ``goal`` is next reached; None if it never is."""
        before = self._before[size - 1]
        block, aim = self._block_of[node], self._block_of[goal]
        if block == aim:
            if goal >= node:
                return before[goal] - before[node]
            if _times(block.node_type, left) <= 1:
                return None
            round_s = before[block.end] - before[block.start]
            return round_s - (before[node] - before[goal])
        if aim.start < block.start:
            return None
        after = aim.start  # all loops before it are run to their end, then it is begun
        return (
            self.seconds(node, left, size)
            - self.seconds(after, left, size)
            + before[goal]
            - before[after]
        )


def in_equal_parts(name: str, batch_s: Sequence[float], parts: int) -> Program:
    """Return a model of static nodes that each take an equal part of a batch's seconds.

    Args:
        name: Name of the model.
        batch_s: Seconds by batch size, from 1 to the largest.
        parts: Number of nodes, at least one.
    """
    return Program(name, [Node([seconds / parts for seconds in batch_s])] * parts)


def _times(node_type: NodeType, left: RemainingRuns) -> int:
    if node_type is NodeType.STATIC:
        return 1
    return left.encoder if node_type is NodeType.ENCODER else left.decoder
