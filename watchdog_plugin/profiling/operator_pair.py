"""Runs an operator of a model after its predecessor there, and the predecessor by itself.

So an operator finds its inputs where its predecessor leaves them, in the caches of the cores that
wrote them, and its threads awake or asleep: a predecessor on one thread lets the others fall
asleep. A product of two matrices runs first, which wakes all threads.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from carpool.onnx_graph.parts import subgraphs
from carpool.onnx_graph.single_node import feeds, results, single_node
from carpool.predictor.composition import MOST_MB
from carpool.predictor.features import sized
from watchdog_plugin.profiling.profiled_session import ProfiledSession, load_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onnx import NodeProto

    from carpool.onnx_graph.operator_graph import Operator
    from carpool.onnx_graph.optimised import Optimised
    from watchdog_plugin.protocols.tensors import Array

__all__ = ["OperatorPair", "Step", "predecessor"]

_NOWHERE = Path()
_LEFT, _RIGHT, _RESULT = (f"carpool-product-{part}" for part in ("left", "right", "result"))
_SIDE = 140  # of its matrices: long enough for threads to wake, shares for forty of them


class Step(NamedTuple):
    """A node of an optimised model, and its sizes."""

    node: NodeProto
    operator: Operator


def predecessor(best: Optimised, position: int) -> Step | None:
    """Return the operator that runs before the one at ``position``, not counting views.

    None if there is none, or if it has a graph of its own or more weights than caches hold.
    """
    for at in range(position - 1, -1, -1):
        step = Step(best.model.graph.node[at], best.graph.operators[at])
        case = step.operator.at(1)
        if sized(case).family == "view":
            continue
        weights = sum(tensor.size_bytes for tensor in case.inputs if tensor.constant)
        is_plain = weights <= MOST_MB << 20 and not any(True for _ in subgraphs(step.node))
        return step if is_plain else None
    return None


class OperatorPair:
    """Sessions of one number of threads, with an operator and without it.

    Args:
        model: The optimised model.
        steps: The operator, after its predecessor if it has one.
        threads: Number of threads.
        cores: As for `ProfiledSession`.

    Raises:
        LoadError: The runtime refuses one of the operators.
    """

    def __init__(
        self, model: ModelProto, steps: Sequence[Step], threads: int, cores: Sequence[int] | None
    ) -> None:
        with load_errors():
            models = [_product()]
            for node, operator in steps:
                models.append(_then(models[-1], single_node(model, node, operator.at(1))))
        self._without, self._with = (
            ProfiledSession(
                each.SerializeToString(),
                _NOWHERE,
                threads,
                operators=False,
                optimise=False,
                cores=cores,
            )
            for each in models[-2:]
        )
        self._steps, self._by_own_clock = steps, threads == 1

    def bind(self, batch: int, values: Mapping[str, Array]) -> list[Array]:
        """Make inputs and outputs for a batch size, and return those most recently used last.

        Args:
            batch: The batch size.
            values: Tensors that follow from shapes.

        Raises:
            LoadError: The runtime cannot bind them.
        """
        inputs: dict[str, Array] = {}
        outputs: dict[str, Array] = {_RESULT: np.zeros((_SIDE, _SIDE), np.float32)}
        bound = [(inputs, outputs)]
        for node, operator in self._steps:
            with load_errors():
                case, known = operator.at(batch), inputs | outputs
                given = {n: known.get(n, a) for n, a in feeds(node, case, dict(values)).items()}
                inputs = inputs | {n: a for n, a in given.items() if n not in outputs}
                outputs = outputs | results(node, case, given)
            bound.append((inputs, outputs))
        self._without.bind(*bound[-2])
        self._with.bind(*bound[-1])
        return [*reversed(outputs.values()), *reversed(inputs.values())]

    def run_s(self, before: Callable[[], None]) -> tuple[float, float]:
        """Return the seconds of a run with the operator and of one without, each after ``before``.

        On one thread, waiting for a core does not count.
        """
        sessions = (self._with, self._without)
        with_s, without_s = (self._one_s(session, before) for session in sessions)
        return with_s, without_s

    def _one_s(self, session: ProfiledSession, before: Callable[[], None]) -> float:
        before()
        wall_s = session.run_bound_s()
        return session.cpu_s if self._by_own_clock else wall_s


def _product() -> ModelProto:
    square = np.ones((_SIDE, _SIDE), np.float32)
    graph = GraphProto(
        name="product",
        node=[helper.make_node("MatMul", [_LEFT, _RIGHT], [_RESULT])],
        output=[helper.make_tensor_value_info(_RESULT, TensorProto.FLOAT, square.shape)],
        initializer=[numpy_helper.from_array(square, name) for name in (_LEFT, _RIGHT)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _then(first: ModelProto, second: ModelProto) -> ModelProto:
    """Return a model that runs both; the second may read what the first computes."""
    joined = ModelProto()
    joined.CopyFrom(second)
    graph = joined.graph
    made = {name for node in first.graph.node for name in node.output}
    for part in ("node", "input", "output", "initializer"):
        before, after = getattr(first.graph, part), [*getattr(graph, part)]
        if part in ("input", "initializer"):
            known = made | {each.name for each in before}
            after = [each for each in after if each.name not in known]
        del getattr(graph, part)[:]
        getattr(graph, part).extend([*before, *after])
    return joined
