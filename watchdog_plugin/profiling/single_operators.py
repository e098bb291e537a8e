"""Measures operators alone, as graphs of one node, and the overhead of a run.

The model itself is never run, only each of its distinct operators, with its own weights. Before
each run, as much memory is moved through the caches as a run of the model moves, so that weights
are found where they would be in such a run; the operator's inputs and outputs are touched last, as
preceding operators would do.

An operator runs after a product of two matrices and a chain of trivial operators, and the time of
these by themselves is subtracted. The runtime's profiler is not used, as it takes microseconds for
each operator. The product uses all threads. During the chain, which runs on one, the others fall
asleep again, so that the operator has to wake them, as operators of a model do that come after ones
on a single thread.
"""

from __future__ import annotations

import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import onnxruntime as ort
from onnx import ModelProto, helper, numpy_helper

from carpool.onnx_graph.single_node import feeds, results, shape_values, single_node
from carpool.predictor.composition import MOST_MB, Footprint
from carpool.predictor.features import sized
from carpool.predictor.profile import Alone, RefusedOperator
from watchdog_plugin.function import LoadError
from watchdog_plugin.profiling.other_programs import OtherPrograms
from watchdog_plugin.profiling.profiled_session import ProfiledSession, load_errors
from watchdog_plugin.profiling.run_overhead import CHAIN_INPUTS, chain, link, overhead, trivial_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from carpool.onnx_graph.operator_graph import Case, Operator
    from carpool.onnx_graph.optimised import Optimised
    from carpool.predictor.profile import Setting
    from watchdog_plugin.protocols.tensors import Array

__all__ = ["Wanted", "measure_alone"]

_PASSES = 3
_WARM_UPS = 2
_VISIT_S, _LEAST_RUNS, _MOST_RUNS = 0.01, 3, 25  # of one setting: time to aim at, bounds of runs
_MOVED_RUNS = 4  # runs of one setting if megabytes are moved before each
_TOLD = 10  # operators between two messages
_TRIES = 2  # factor of the number of runs, if some are disturbed
_DISTURBED = 0.02  # share of a run spent waiting for a core, above which it is disturbed
_BLOCK_S = 0.001  # interval of reading the kernel's accounts
_NOWHERE = Path()
_PRODUCT = "carpool-preceding-product"
_SHARE = 1 << 16  # multiplications that the runtime gives to each further thread
_PRECEDING = 60  # trivial operators, about 40 us


class Wanted(NamedTuple):
    """An operator to be measured.

    Attributes:
        position: Its index in the graph.
        settings: The settings to measure it at.
    """

    position: int
    settings: Sequence[Setting]


def measure_alone(
    best: Optimised, wanted: Sequence[Wanted], budget_s: float, say: Callable[[str], None]
) -> Iterator[Alone | RefusedOperator]:
    """Yield times of operators, in the order of ``wanted``, until the time limit.

    Progress is reported after every ten operators. An operator that the runtime does not run alone
    is yielded as refused. As the speed of a shared machine changes from second to second, all are
    measured several times if the budget allows it, and yielded again when they were faster.
    """
    end_s, here = time.monotonic() + budget_s, _Here(best, wanted)
    least: dict[tuple[Case, Setting], float] = {}
    for again in range(_PASSES):
        if again and len(wanted) > _TOLD and time.monotonic() < end_s:
            say(f"all operators measured, now again ({again} of {_PASSES - 1})")
        for row in _once(best, wanted, here, end_s, _silently if again else say):
            seconds = row.seconds if isinstance(row, Alone) else 0.0
            if seconds < least.get((row.case, row.setting), math.inf):
                least[row.case, row.setting] = seconds
                yield row


def _once(
    best: Optimised,
    wanted: Sequence[Wanted],
    here: _Here,
    end_s: float,
    say: Callable[[str], None],
) -> Iterator[Alone | RefusedOperator]:
    for done, each in enumerate(wanted):
        if done and not done % _TOLD:
            say(f"{done} of {len(wanted)} operators measured")
        if time.monotonic() > end_s:
            say(f"the time budget is spent: {len(wanted) - done} operators remain")
            return
        for operator in best.graph.operators[each.position].branches:
            yield from _Operator(best, each, operator, here).measured(end_s)


def _silently(message: str) -> None:
    """Say nothing, as all operators have been measured once."""


def _shape_values(best: Optimised, batch: int) -> dict[str, Array]:
    return shape_values(best.model, best.graph.operators, batch, _run_once)


def _run_once(model: ModelProto) -> dict[str, Array]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    data = model.SerializeToString()
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, {}), strict=True))


class _Here:
    """State shared by the measurements of a model's operators.

    Attributes:
        values: By batch size, the values of tensors that follow from shapes.
        footprint: The memory that runs of the model move.
        view_s: By number of threads, the time of an operator that computes and moves nothing.
        profiled_s: By number of threads, what the runtime's profiler adds to each operator.
    """

    def __init__(self, best: Optimised, wanted: Sequence[Wanted]) -> None:
        settings = {setting for each in wanted for setting in each.settings}
        threads = {setting.threads for setting in settings}
        self.values = {batch: _shape_values(best, batch) for batch in {s.batch for s in settings}}
        self.footprint = Footprint(best.graph)
        self.view_s = {count: trivial_s(count) for count in threads}
        self.profiled_s = {count: -overhead(count).per_operator_s for count in threads}
        self.blocks = np.zeros((2, (MOST_MB << 20) // 16))


class _Mover:
    """Moves memory through the caches between two runs, on every core that a run uses.

    In a run of a model, the preceding operator has used the same cores: each has its part of the
    operator's inputs in its cache, and none sleeps so deeply that it takes long to wake up.

    Args:
        blocks: Source and target of the memory moved.
        cores: The cores; the first is that of the calling thread.
    """

    def __init__(self, blocks: Array, cores: Sequence[int]) -> None:
        self._blocks, self._parts = blocks, len(cores)
        self._others = [
            ThreadPoolExecutor(1, initializer=os.sched_setaffinity, initargs=(0, [core]))
            for core in cores[1:]
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for other in self._others:
            other.shutdown()

    def move(self, moved_mb: int, arrays: Sequence[Array]) -> None:
        """Move ``moved_mb`` through the caches, then touch arrays that an operator finds warm."""
        moves = [
            other.submit(self._move, part, moved_mb, arrays)
            for part, other in enumerate(self._others, 1)
        ]
        self._move(0, moved_mb, arrays)
        for move in moves:
            move.result()

    def _move(self, part: int, moved_mb: int, arrays: Sequence[Array]) -> None:
        target, source = (self._of(part, each[: (moved_mb << 20) // 16]) for each in self._blocks)
        np.copyto(target, source)
        for array in arrays:
            own = self._of(part, array)
            np.copyto(own, own.copy())

    def _of(self, part: int, array: Array) -> Array:
        """Return the part of ``array`` that one core moves."""
        flat = array.reshape(-1)
        first, end = (at * flat.size // self._parts for at in (part, part + 1))
        return flat[first:end]


class _Operator:
    """Measures one operator at all its settings."""

    def __init__(self, best: Optimised, wanted: Wanted, operator: Operator, here: _Here) -> None:
        self._node = best.model.graph.node[wanted.position]
        self._operator, self._settings, self._here = operator, wanted.settings, here
        self._whole = best.model

    def measured(self, end_s: float) -> Iterator[Alone | RefusedOperator]:
        """Yield its times; refusals from the first number of threads that the runtime refuses."""
        if sized(self._case(self._settings[0])).family == "view":  # alone, it would be a copy
            yield from (self._row(s, self._here.view_s[s.threads]) for s in self._settings)
            return
        for at, threads in enumerate(sorted({setting.threads for setting in self._settings})):
            if at and time.monotonic() > end_s:
                return
            some = [setting for setting in self._settings if setting.threads == threads]
            try:
                yield from self._of_session(threads, some, end_s)
            except LoadError:
                rest = (setting for setting in self._settings if setting.threads >= threads)
                yield from (RefusedOperator(self._case(setting), setting) for setting in rest)
                return

    def _of_session(
        self, threads: int, settings: Sequence[Setting], end_s: float
    ) -> Iterator[Alone]:
        with load_errors():
            model = single_node(self._whole, self._node, self._case(settings[0]))
            both, preceding = _preceded(model, threads), _preceding(threads)
        rows: list[Alone] = []
        with _spread_out(threads) as cores, _Mover(self._here.blocks, cores or [0]) as mover:
            pair = _Pair(both, preceding, threads, cores)
            for setting in settings:
                if rows and time.monotonic() > end_s:
                    break
                rows.append(self._row(setting, self._visit(pair, setting, mover, end_s)))
        yield from rows

    def _visit(self, pair: _Pair, setting: Setting, mover: _Mover, end_s: float) -> float:
        """Return its seconds at one setting, as the runtime's profiler would report them."""
        case, batch = self._case(setting), setting.batch
        with load_errors():
            inputs = feeds(self._node, case, self._here.values[batch])
            outputs = results(self._node, case, inputs)
        pair.bind(inputs, outputs)
        last_s = [sum(pair.run_s(lambda: None)) for _ in range(_WARM_UPS)][-1]
        moved_mb = self._here.footprint.moved_mb(case, batch)
        if moved_mb:
            before = partial(mover.move, moved_mb, [*inputs.values(), *outputs.values()])
            times = _Calm(partial(pair.run_s, before)).runs(_MOVED_RUNS, end_s)
        else:
            runs = int(min(_MOST_RUNS, max(_LEAST_RUNS, _VISIT_S / last_s)))
            times = _Calm(partial(pair.run_s, lambda: None)).runs(runs, end_s)
        with_s, without_s = (float(median(each)) for each in zip(*times, strict=True))
        return max(0.0, with_s - without_s) + self._here.profiled_s[setting.threads]

    def _row(self, setting: Setting, seconds: float) -> Alone:
        case = self._case(setting)
        return Alone(case, setting, self._here.footprint.moved_mb(case, setting.batch), seconds)

    def _case(self, setting: Setting) -> Case:
        return self._operator.at(setting.batch)


def _preceding(threads: int) -> ModelProto:
    """Return a model of a product, just large enough to use all threads, and a trivial chain."""
    names = [f"{_PRODUCT}-{part}" for part in ("left", "right", "result")]
    side = math.ceil(((threads - 1) * _SHARE + 1) ** (1 / 3))
    square = np.ones((side, side), np.float32)
    model = chain(_PRECEDING)
    graph, trivial = model.graph, list(model.graph.node)
    del graph.node[:]
    graph.node.extend([helper.make_node("MatMul", names[:2], names[2:], name=_PRODUCT), *trivial])
    graph.initializer.extend(numpy_helper.from_array(square, name) for name in names[:2])
    graph.output.append(helper.make_empty_tensor_value_info(names[2]))
    return model


def _preceded(model: ModelProto, threads: int) -> ModelProto:
    """Return the model after the operators of `_preceding`."""
    first, preceded = _preceding(threads).graph, ModelProto()
    preceded.CopyFrom(model)
    graph, nodes = preceded.graph, list(preceded.graph.node)
    del graph.node[:]
    graph.node.extend([*first.node, *nodes])
    for part in ("initializer", "input", "output"):
        getattr(graph, part).extend(getattr(first, part))
    return preceded


class _Pair:
    """Runs an operator with the operators that precede it, and these by themselves.

    Args:
        both: The model with the operator.
        preceding: The model without the operator.
        threads: Number of threads.
        cores: As for `ProfiledSession`.
    """

    def __init__(
        self, both: ModelProto, preceding: ModelProto, threads: int, cores: Sequence[int] | None
    ) -> None:
        self._both, self._preceding = (
            ProfiledSession(
                model.SerializeToString(),
                _NOWHERE,
                threads,
                operators=False,
                optimise=False,
                cores=cores,
            )
            for model in (both, preceding)
        )
        self._by_own_clock = threads == 1
        self._end = {link(_PRECEDING): np.zeros((1, 16), np.float32)}

    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> None:
        """Make the operator read from and write to these arrays."""
        self._both.bind(inputs | CHAIN_INPUTS, outputs | self._end)
        self._preceding.bind(CHAIN_INPUTS, self._end)

    def run_s(self, before: Callable[[], None]) -> tuple[float, float]:
        """Return the seconds of a run with the operator and of one without, each after ``before``.

        On one thread, waiting for a core does not count.
        """
        sessions = (self._both, self._preceding)
        with_s, without_s = (self._one_s(session, before) for session in sessions)
        return with_s, without_s

    def _one_s(self, session: ProfiledSession, before: Callable[[], None]) -> float:
        before()
        wall_s = session.run_bound_s()
        return session.cpu_s if self._by_own_clock else wall_s


@contextmanager
def _spread_out(threads: int) -> Iterator[list[int] | None]:
    """Pin the calling thread to the first of the yielded cores, one for each thread.

    The system often wakes a thread on the core of the thread that wakes it, and separates the two
    only after milliseconds of work: negligible in a run of a model, but not in one of an operator.
    """
    allowed = os.sched_getaffinity(0)
    if not 1 < threads <= len(allowed):
        yield None
        return
    cores = sorted(allowed)[:threads]
    os.sched_setaffinity(0, cores[:1])
    try:
        yield cores
    finally:
        os.sched_setaffinity(0, allowed)


class _Calm:
    """Selects runs that other programs do not disturb, if possible.

    Args:
        run: Runs once, and returns the times.
    """

    def __init__(self, run: Callable[[], tuple[float, float]]) -> None:
        self._run, self._other_programs = run, OtherPrograms()

    def runs(self, count: int, end_s: float) -> list[tuple[float, float]]:
        """Return ``count`` undisturbed runs, or the least disturbed of twice as many.

        After the time limit no run begins, except the first: while other programs use all cores,
        a run on several threads can take a second.
        """
        candidates: list[tuple[float, tuple[float, float]]] = []
        calm = 0
        while calm < count and len(candidates) < _TRIES * count:
            share, times = self._block(count - calm)
            candidates += [(share, each) for each in times]
            calm += len(times) if share <= _DISTURBED else 0
            if time.monotonic() > end_s:
                break
        return [times for _, times in sorted(candidates)[: max(calm, _LEAST_RUNS)]]

    def _block(self, most: int) -> tuple[float, list[tuple[float, float]]]:
        """Run for a millisecond, at least once; return the share of time disturbed and the times.

        The share is not measured for each run, as reading the kernel's accounts cools the caches.
        """
        queued_s, began = self._other_programs.queued_s(), time.monotonic()
        times = [self._run()]
        while len(times) < most and time.monotonic() < began + _BLOCK_S:
            times.append(self._run())
        return (self._other_programs.queued_s() - queued_s) / (time.monotonic() - began), times
