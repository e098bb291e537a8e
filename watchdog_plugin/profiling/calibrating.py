"""Calibrates this machine: times the reference operators, and the overhead of runs."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.onnx_graph.optimised import optimised
from carpool.predictor.calibration import Calibration
from carpool.predictor.features import sized
from carpool.predictor.profile import Alone, Setting
from watchdog_plugin.profiling.profiler import origin
from watchdog_plugin.profiling.reference_operators import LARGE, SMALL, reference_model
from watchdog_plugin.profiling.run_overhead import measure_overhead
from watchdog_plugin.profiling.single_operators import Wanted, measure_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from carpool.onnx_graph.operator_graph import Operator
    from carpool.predictor.profile import Overhead
    from watchdog_plugin.profiling.reference_operators import Reference

__all__ = ["calibrate"]

_OF_EACH = 3  # most operators of a class
_FOR_OVERHEAD = 0.1  # share of the budget after which the overhead of runs is not measured again
_MODELS = ((LARGE, (1,)), (SMALL, (1, 8)))  # with the batch sizes that they are timed at


def calibrate(threads: Sequence[int], budget_s: float, say: Callable[[str], None]) -> Calibration:
    """Measure this machine's calibration.

    Args:
        threads: Numbers of threads.
        budget_s: Time limit in seconds; operators that are not reached are left out.
        say: Called with progress messages.
    """
    end_s = time.monotonic() + budget_s
    limit_s = _FOR_OVERHEAD * budget_s / len(threads)
    overheads = {count: measure_overhead(count, limit_s) for count in threads}
    rows: list[Alone] = []
    for references, batches in _MODELS:
        if time.monotonic() > end_s:
            say("the time budget is spent: no more operators are measured")
            break
        rows += _timed(references, batches, overheads, end_s, say)
    return Calibration(origin(), tuple(rows), overheads)


def _few_of_each(operators: Sequence[Operator]) -> Iterator[int]:
    """Yield positions of a few operators of each class, as the runtime adds others to the model."""
    counts: Counter[str] = Counter()
    for at, operator in enumerate(operators):
        operator_class = sized(operator.at(1)).operator_class
        counts[operator_class] += 1
        if counts[operator_class] <= _OF_EACH:
            yield at


def _timed(
    references: Sequence[Reference],
    batches: Sequence[int],
    overheads: Mapping[int, Overhead],
    end_s: float,
    say: Callable[[str], None],
) -> list[Alone]:
    best = optimised(Path("references.onnx"), reference_model(references))
    settings = [Setting(batch, count) for count in overheads for batch in batches]
    wanted = [Wanted(at, settings) for at in _few_of_each(best.graph.operators)]
    profiled_s = {count: -each.per_operator_s for count, each in overheads.items()}
    rows = measure_alone(best, wanted, profiled_s, end_s - time.monotonic(), say)
    fastest = {(row.case, row.setting): row for row in rows if isinstance(row, Alone)}
    return list(fastest.values())
