"""Tries a cut model: compares its outputs with those of the whole model, and times both.

Times come from a `Meter`, so that a search for cuts can be run on given times.
"""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from watchdog_plugin.function import LoadError
from watchdog_plugin.onnx.session import OnnxSession
from watchdog_plugin.stage_cutting.chain import Chain
from watchdog_plugin.stage_cutting.node_times import node_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from watchdog_plugin.protocols.tensors import Array, Arrays

__all__ = ["Meter", "Pieces", "StageMeasurements", "checked_chain"]

_TOLERANCE = 1e-5  # of the largest value of an output
_ROUNDS_MIN = 7
_MEASURE_S = 3.0


class StageMeasurements(NamedTuple):
    """Times at a batch of one.

    Attributes:
        whole_s: Time of the whole model.
        stage_s: Time of each stage, the minimum of several runs.
        loss: Time of all stages divided by that of the whole model, minus one; each the minimum of
            several runs, as other programs on the machine can only prolong them.
    """

    whole_s: float
    stage_s: tuple[float, ...]
    loss: float


class Pieces(NamedTuple):
    """A model and the stages that it was cut into.

    Attributes:
        path: File of the model.
        whole: The model, loaded.
        files: Files of the stages, in order.
        chain: The stages, loaded.
        values: Inputs of one row.
        threads: Number of cores a run may use.
    """

    path: Path
    whole: OnnxSession
    files: Sequence[Path]
    chain: Chain
    values: Arrays
    threads: int


class Meter:
    """Measures nodes and stages on this machine."""

    def node_seconds(
        self, path: Path, nodes: Sequence[Any], whole: OnnxSession, feeds: Arrays, threads: int
    ) -> list[float]:
        """Return the seconds of each of ``nodes`` of the model at ``path`` on ``threads`` cores."""
        del whole
        return node_seconds(path, nodes, feeds, threads)

    def trial(self, pieces: Pieces, *, brief: bool) -> StageMeasurements:
        """Return the times of a whole model and of its stages, from a few runs if ``brief``."""
        # One thread's own time leaves out what others on the machine took from it meanwhile.
        own = pieces.threads == 1 and pieces.whole.provider == "CPUExecutionProvider"
        clock = time.thread_time if own else time.perf_counter
        measure_s = 0.0 if brief else _MEASURE_S
        return _measured(pieces.whole, pieces.chain, pieces.values, measure_s, clock)

    def batch_seconds(
        self, path: Path, whole: OnnxSession, feeds: Arrays, threads: int
    ) -> dict[int, float]:
        """Return an empty dict, as functions measure the seconds by batch size themselves."""
        del path, whole, feeds, threads
        return {}


def checked_chain(
    whole: OnnxSession, files: Sequence[Path], tries: Sequence[Arrays], threads: int
) -> Chain:
    """Return the stages in ``files``, after comparing their outputs for ``tries`` with the model's.

    Raises:
        LoadError: An output differs.
    """
    stages = [OnnxSession(path, threads, stage=True) for path in files]
    chain = Chain(stages, list(whole.signature.outputs))
    for values in tries:
        _compare(whole.run(values), chain.run_all(values))
    return chain


def _compare(expected: Arrays, actual: Arrays) -> None:
    for name, value in expected.items():
        other = actual[name]
        if value.shape != other.shape or value.dtype != other.dtype:
            msg = f"output {name!r} of the stages is {other.shape}, expected {value.shape}"
            raise LoadError(msg)
        if value.dtype.kind != "f":
            apart, tolerance = float(np.any(value != other)), 0.0
        else:
            apart, tolerance = _apart(value, other)
        if not apart <= tolerance:
            msg = f"output {name!r} of the stages is {apart:g} off: expected at most {tolerance:g}"
            raise LoadError(msg)


def _apart(value: Array, other: Array) -> tuple[float, float]:
    """Return the maximum difference and its tolerance; infinities and NaN equal themselves."""
    alike = (value == other) | (np.isnan(value) & np.isnan(other))
    with np.errstate(invalid="ignore"):  # infinite ones of either sign
        apart = np.abs(value - other)[~alike]
    finite = np.abs(value[np.isfinite(value)])
    return float(np.max(apart, initial=0.0)), _TOLERANCE * float(np.max(finite, initial=0.0))


def _measured(
    whole: OnnxSession, chain: Chain, values: Arrays, measure_s: float, clock: Callable[[], float]
) -> StageMeasurements:
    """Run the model and its stages alternately, so that other programs affect both equally."""
    rounds: list[tuple[float, list[float]]] = []
    began = time.perf_counter()
    while len(rounds) < _ROUNDS_MIN or time.perf_counter() - began < measure_s:
        whole_s = _seconds(partial(whole.run, values), clock)
        stage_s, current = [], values
        for number in range(len(chain)):
            start_s = clock()
            current = chain.run(number, current)
            stage_s.append(clock() - start_s)
        rounds.append((whole_s, stage_s))
    loss = min(sum(stage_s) for _, stage_s in rounds) / min(whole_s for whole_s, _ in rounds) - 1
    return StageMeasurements(
        statistics.median(whole_s for whole_s, _ in rounds),
        tuple(map(min, *(stage_s for _, stage_s in rounds))),
        loss,
    )


def _seconds(call: Callable[[], object], clock: Callable[[], float]) -> float:
    start_s = clock()
    call()
    return clock() - start_s
