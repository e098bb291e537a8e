"""Measures operators alone, as graphs of one node, and what a run costs besides its operators.

A model is never run: each of its distinct operators is, with weights of its own. Inputs are written
just before they are read, as in a model. Weights are found in a cache, or, for the times called
cold, no longer: a large array is written to before each such run.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median, median_grouped
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from carpool.onnx_graph.single_node import feeds, shape_values, single_node
from carpool.predictor.profile import Alone, Overhead
from watchdog_plugin.function import LoadError
from watchdog_plugin.profiling.neighbours import Neighbours
from watchdog_plugin.profiling.session import ProfiledSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from onnx import ModelProto

    from carpool.onnx_graph.optimised import Optimised
    from carpool.predictor.graph import Case, Operator
    from carpool.predictor.profile import Setting
    from watchdog_plugin.protocols.tensors import Array

__all__ = ["Wanted", "measure_alone", "measure_overhead"]

_WARM_UPS = 2
_VISIT_S, _LEAST_RUNS, _MOST_RUNS = 0.01, 3, 15  # of one size, with weights in a cache
_COLD_RUNS, _COLD_BYTES = 5, 1 << 16  # smaller weights are soon back in a cache
_TRIES, _DISTURBED = 3, 0.02  # times as many runs, if others take more than this share
_BLOCK_S = 0.001  # the kernel's accounts are read that often
_CLOCK_US = 1.0  # operators are reported in whole microseconds
_US_PER_S = 1e6
_CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
_CACHE_BYTES, _MOST_BYTES = 32 << 20, 64 << 20
_NOWHERE = Path()
_CHAINS, _CHAIN_RUNS = (4, 132), 40


class Wanted(NamedTuple):
    """An operator that is to be measured.

    Attributes:
        position: In the graph.
        settings: What to measure it at.
    """

    position: int
    settings: Sequence[Setting]


def measure_alone(
    best: Optimised, wanted: Sequence[Wanted], budget_s: float, say: Callable[[str], None]
) -> Iterator[Alone]:
    """Times of operators, in the order in which they are wanted, until the time is up.

    Those that the runtime does not run alone are left out.
    """
    end_s, evict = time.monotonic() + budget_s, _Eviction()
    values: dict[int, dict[str, Array]] = {}
    for batch in sorted({setting.batch for each in wanted for setting in each.settings}):
        values[batch] = _shape_values(best, batch)
    for done, each in enumerate(wanted):
        if time.monotonic() > end_s:
            say(f"the budget of {budget_s:g} s is spent: {len(wanted) - done} operators remain")
            return
        for operator in best.graph.operators[each.position].ways:
            yield from _Operator(best, each, operator, values, evict).measured(end_s)


def measure_overhead(threads: int) -> Overhead:
    """What a run costs beyond its operators: those of two chains that compute next to nothing."""
    (few, few_s), (many, many_s) = [(count, _beyond_s(count, threads)) for count in _CHAINS]
    each_s = (many_s - few_s) / (many - few)
    return Overhead(few_s - few * each_s, each_s)


def _beyond_s(count: int, threads: int) -> float:
    model = _chain(count).SerializeToString()
    inputs = {"t0": np.ones((1, 16), np.float32)}
    whole = ProfiledSession(model, _NOWHERE, threads, operators=False, optimise=False)
    parts = ProfiledSession(model, _NOWHERE, threads, operators=True, optimise=False)
    runs_s = [whole.run_s(inputs) for _ in range(_CHAIN_RUNS)]
    for _ in range(_CHAIN_RUNS):
        parts.run_s(inputs)
    spent_s = [sum(operator.seconds for operator in run) for run in parts.operator_times()]
    return median(runs_s[_WARM_UPS:]) - median(spent_s[_WARM_UPS:])


def _chain(count: int) -> ModelProto:
    nodes = [helper.make_node("Neg", [f"t{at}"], [f"t{at + 1}"]) for at in range(count)]
    first, last = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16])]
        for name in ("t0", f"t{count}")
    )
    graph = helper.make_graph(nodes, "chain", first, last)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _shape_values(best: Optimised, batch: int) -> dict[str, Array]:
    return shape_values(best.model, best.graph.operators, batch, _run_once)


def _run_once(model: ModelProto) -> dict[str, Array]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    data = model.SerializeToString()
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, {}), strict=True))


class _Eviction:
    """Drives everything out of the caches but what is touched last."""

    def __init__(self) -> None:
        try:
            size_bytes = int(_CACHE.read_text(encoding="ascii").rstrip("K\n")) << 10
        except (OSError, ValueError):
            size_bytes = _CACHE_BYTES
        self._block = np.zeros(min(_MOST_BYTES, size_bytes + (size_bytes >> 1)) // 8)

    def __call__(self, inputs: Mapping[str, Array]) -> None:
        self._block += 1.0
        for array in inputs.values():
            np.copyto(array, array.copy())


class _Operator:
    """One operator, at all its settings."""

    def __init__(
        self,
        best: Optimised,
        wanted: Wanted,
        operator: Operator,
        values: Mapping[int, dict[str, Array]],
        evict: _Eviction,
    ) -> None:
        self._node = best.model.graph.node[wanted.position]
        self._operator = operator
        self._settings, self._values, self._evict = wanted.settings, values, evict
        self._model = single_node(best.model, self._node, self._case(wanted.settings[0]))
        weights = (
            form.size_bytes for form in self._case(wanted.settings[0]).inputs if form.constant
        )
        self._is_cold = sum(weights) >= _COLD_BYTES

    def measured(self, end_s: float) -> Iterator[Alone]:
        """Its times; none of what the runtime refuses."""
        data = self._model.SerializeToString()
        for threads in sorted({setting.threads for setting in self._settings}):
            some = [setting for setting in self._settings if setting.threads == threads]
            try:
                yield from self._of_session(data, threads, some, end_s)
            except LoadError:  # it is refused by name where nothing else tells its time
                return

    def _of_session(
        self, data: bytes, threads: int, settings: Sequence[Setting], end_s: float
    ) -> Iterator[Alone]:
        session = ProfiledSession(data, _NOWHERE, threads, operators=True, optimise=False)
        visits: list[tuple[Setting, tuple[list[int], list[int]]]] = []
        for setting in settings:
            if visits and time.monotonic() > end_s:
                break
            inputs = feeds(self._node, self._case(setting), self._values[setting.batch])
            visits.append((setting, self._visit(session, inputs)))
        times = [sum(operator.seconds for operator in run) for run in session.operator_times()]
        for setting, (warm, cold) in visits:
            warm_s, cold_s = (_median_s([times[run] for run in runs]) for runs in (warm, cold))
            yield Alone(self._case(setting), setting, warm_s, max(warm_s, cold_s))

    def _visit(
        self, session: ProfiledSession, inputs: dict[str, Array]
    ) -> tuple[list[int], list[int]]:
        """Which of the session's runs count: with weights in a cache, and with cold ones."""
        last_s = [session.run_s(inputs) for _ in range(_WARM_UPS)][-1]
        runs = int(min(_MOST_RUNS, max(_LEAST_RUNS, _VISIT_S / last_s)))
        calm = _Calm(session, inputs)
        warm = calm.runs(runs, lambda: None)
        return warm, calm.runs(_COLD_RUNS, lambda: self._evict(inputs)) if self._is_cold else warm

    def _case(self, setting: Setting) -> Case:
        return self._operator.at(setting.batch)


class _Calm:
    """Runs of a session that other programs leave alone, as far as they do, by their numbers."""

    def __init__(self, session: ProfiledSession, inputs: dict[str, Array]) -> None:
        self._session, self._inputs, self._neighbours = session, inputs, Neighbours()

    def runs(self, count: int, before: Callable[[], None]) -> list[int]:
        """So many that were not disturbed; of a few times as many, those disturbed least."""
        found: list[tuple[float, int]] = []
        calm = 0
        while calm < count and len(found) < _TRIES * count:
            share, numbers = self._block(count - calm, before)
            found += [(share, number) for number in numbers]
            calm += len(numbers) if share <= _DISTURBED else 0
        return [number for _, number in sorted(found)[: max(calm, _LEAST_RUNS)]]

    def _block(self, most: int, before: Callable[[], None]) -> tuple[float, range]:
        """The share that others took of a millisecond or one run, and the runs that it had.

        Not of each run, as reading the kernel's accounts cools caches.
        """
        first, queued_s = self._session.runs, self._neighbours.queued_s()
        began = time.monotonic()
        while self._session.runs < first + most and time.monotonic() < began + _BLOCK_S:
            before()
            self._session.run_s(self._inputs)
        share = (self._neighbours.queued_s() - queued_s) / (time.monotonic() - began)
        return share, range(first, self._session.runs)


def _median_s(times: Sequence[float]) -> float:
    return median_grouped([seconds * _US_PER_S for seconds in times], _CLOCK_US) / _US_PER_S
