"""Measures the overhead of a run besides its operators, with chains of trivial operators."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from onnx import ModelProto, TensorProto, helper

from carpool.predictor.profile import Overhead
from watchdog_plugin.profiling.disturbance import Disturbance, pinned
from watchdog_plugin.profiling.profiled_session import ProfiledSession

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from watchdog_plugin.profiling.profiled_session import OperatorTimes

__all__ = ["CHAIN_INPUTS", "chain", "measure_overhead", "quicker_half_s", "trivial_s"]

_MEASUREMENTS, _LIMIT_S = 3, 10.0
_CHAINS, _CHAIN_RUNS, _CHAIN_S = (4, 132), 60, 0.5  # operators; runs, and time limit for them
_PREFIX = "carpool-chain-"
_NOWHERE = Path()
T = TypeVar("T")
CHAIN_INPUTS = {f"{_PREFIX}0": np.ones((1, 16), np.float32)}


def measure_overhead(threads: int, limit_s: float = _LIMIT_S) -> Overhead:
    """Return a run's overhead besides its operators, from two chains of trivial operators.

    It is the median of several measurements: as a difference of times, it may also be too short.

    Args:
        threads: Number of threads.
        limit_s: Time limit in seconds, after which no further measurement begins.
    """
    end_s = time.monotonic() + limit_s
    found = [_overhead(threads)]
    while len(found) < _MEASUREMENTS and time.monotonic() < end_s:
        found.append(_overhead(threads))
    return sorted(found)[len(found) // 2]


def _overhead(threads: int) -> Overhead:
    (few, few_s), (many, many_s) = [(count, _beyond_s(count, threads)) for count in _CHAINS]
    each_s = (many_s - few_s) / (many - few)
    return Overhead(few_s - few * each_s, each_s)


def _beyond_s(count: int, threads: int) -> float:
    """Return the seconds of a run of a chain besides its operators."""
    data = chain(count).SerializeToString()
    whole = ProfiledSession(data, _NOWHERE, threads, operators=False, optimise=False)
    runs_s = _undisturbed(threads, lambda: whole.run_s(CHAIN_INPUTS))
    return quicker_half_s(runs_s) - count * _each_s(count, threads)


def trivial_s(threads: int) -> float:
    """Return the seconds of an operator that computes nothing, as reported by the runtime."""
    return _each_s(_CHAINS[1], threads)


def _each_s(count: int, threads: int) -> float:
    """Return the seconds per operator of a chain, as reported by the runtime."""
    runs = _chain_times(chain(count), threads)
    return quicker_half_s([sum(operator.seconds for operator in run) for run in runs]) / count


def _chain_times(model: ModelProto, threads: int) -> list[OperatorTimes]:
    data = model.SerializeToString()
    with ProfiledSession(data, _NOWHERE, threads, operators=True, optimise=False) as session:
        numbers = itertools.count()

        def run() -> int:
            session.run_s(CHAIN_INPUTS)
            return next(numbers)

        chosen = _undisturbed(threads, run)
        times = session.operator_times()
        return [times[number] for number in chosen]


def _undisturbed(threads: int, run: Callable[[], T]) -> list[T]:
    """Run a chain many times, but less often if others prolong the runs too much."""
    disturbance = Disturbance()
    cores = disturbance.calmest(threads)
    with pinned(cores):
        disturbance.await_calm(cores, _CHAIN_S)
        _, results = disturbance.runs(run, _CHAIN_RUNS, time.monotonic() + _CHAIN_S, cores)
    return results


def quicker_half_s(times: Sequence[float]) -> float:
    """Return the mean of the faster half of the times.

    Disturbances only prolong runs, and a mean has a finer resolution than the clock.
    """
    quicker = sorted(times)[: max(1, len(times) // 2)]
    return sum(quicker) / len(quicker)


def chain(count: int) -> ModelProto:
    """Return a model of trivial operators, one after the other."""
    nodes = [helper.make_node("Neg", [_link(at)], [_link(at + 1)]) for at in range(count)]
    first, last = (
        [helper.make_tensor_value_info(_link(at), TensorProto.FLOAT, [1, 16])] for at in (0, count)
    )
    graph = helper.make_graph(nodes, "chain", first, last)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _link(at: int) -> str:
    """Return the name of a chain's tensor before its operator ``at``."""
    return f"{_PREFIX}{at}"
