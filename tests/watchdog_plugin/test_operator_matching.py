"""Timed operators are matched to the operators of the graph."""

from __future__ import annotations

import random

from tests.carpool.profiles import graph
from watchdog_plugin.profiling.operator_matching import matched
from watchdog_plugin.profiling.profiled_session import OperatorTime

NET = graph([8, 16, 16, 16, 4])
CASES = [operator.at(2) for operator in NET.operators]


def _timed(name: str, at: int) -> OperatorTime:
    case = CASES[at]
    return OperatorTime(name, "Gemm", (case.inputs[0].shape, case.outputs[0].shape), float(at))


def test_operators_are_matched_by_name() -> None:
    """Operators of the same shape are matched by name, whatever order they ran in."""
    run = [_timed(operator.name, at) for at, operator in enumerate(NET.operators)]
    random.Random(1).shuffle(run)
    assert [0.0, 1.0, 2.0, 3.0] == matched(NET, CASES, run)


def test_operators_are_matched_by_shape_if_names_change() -> None:
    """A name with another shape is ignored, and operators of equal shapes may be swapped."""
    names = ["layer 3", "token 7", "layer 0", "token 9"]
    found = matched(NET, CASES, [_timed(name, at) for at, name in enumerate(names)])
    assert found is not None
    assert [0.0, [1.0, 2.0], 3.0] == [found[0], sorted(found[1:3]), found[3]]


def test_a_run_of_another_graph_is_refused() -> None:
    """If an operator was not timed, nothing is matched."""
    assert matched(NET, CASES, [_timed("layer 0", 0)]) is None
