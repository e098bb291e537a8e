"""Gives a staged model the interface of other models: calls in, outcomes out.

Any number of batches may be in flight; each thread waits for its own. The executor batches requests
of equal shapes, even from different batches. A request with more rows than the largest batch size
runs in parts. With ``lazy`` off, it reports a concurrency of one batch, for models that run step by
step under other executors.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np

from carpool.errors import BadRequest, CarpoolError
from carpool.lazy_batching.program import NodeType, most_batches
from watchdog_plugin import logs
from watchdog_plugin.onnx.model import fault
from watchdog_plugin.stage_execution.executor import Latch, ServedModel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from carpool.lazy_batching.program import Program
    from watchdog_plugin.onnx.padding import Padding, PaddingWaste
    from watchdog_plugin.protocols.tensors import Arrays, Call
    from watchdog_plugin.stage_execution.executor import Executor, Member
    from watchdog_plugin.stage_execution.staged_model import StagedModel

__all__ = ["LazyModel"]


class LazyModel:
    """Runs calls on an executor.

    Args:
        model: The staged model.
        program: Its stages with their times.
        executor: The executor, which several models may share.
        provider: Execution provider that it runs on.
        lazy: Whether requests join running ones.

    Attributes:
        concurrency: Number of batches that it accepts concurrently.
    """

    padding: Padding | None = None
    joins = True

    def __init__(
        self,
        model: StagedModel,
        program: Program,
        executor: Executor,
        provider: str,
        *,
        lazy: bool,
    ) -> None:
        self.on_run: Callable[[int, int], object] = lambda _rows, _ns: None
        self._served = ServedModel(model, program)
        self._executor = executor
        self._sequences = NodeType.DECODER in model.node_types
        self.provider = provider
        self.signature = model.signature
        self.concurrency = most_batches(program.batch_max) if lazy else 1

    def warm_up(self, sizes: Sequence[int]) -> None:
        """Do nothing, as the stages have been measured with all batch sizes."""

    def run(
        self,
        calls: Sequence[Call],
        waste: PaddingWaste | None = None,
        remaining_s: Sequence[float] = (),
    ) -> list[Arrays | CarpoolError]:
        """Return the outputs, or the error, of each request of the calls.

        Args:
            calls: The calls of the model.
            waste: Not used, as nothing is padded.
            remaining_s: For each request, the seconds to its deadline; if empty, there are none.
        """
        del waste
        singles = [single for call in calls for single in call.apart()]
        budgets_s = remaining_s or [math.inf] * len(singles)
        batch_max = self._served.program.batch_max
        parts = [
            [] if self._sequences and call.rows > 1 else _parts(call.inputs, call.rows, batch_max)
            for call in singles
        ]
        latch = Latch(sum(map(len, parts)))
        began = time.perf_counter_ns()
        members = [
            self._submit(part, budget_s, latch)
            for part, budget_s in zip(parts, budgets_s, strict=True)
        ]
        latch.wait()
        outcomes = [_outcome(each) for each in members]
        took_ns = time.perf_counter_ns() - began
        for part, outcome in zip(parts, outcomes, strict=True):
            if not isinstance(outcome, CarpoolError):
                for _, rows in part:  # each is its own execution, of at most `batch_max` rows
                    self.on_run(rows, took_ns)
        return outcomes

    def _submit(
        self, parts: Sequence[tuple[Arrays, int]], budget_s: float, latch: Latch
    ) -> list[Member]:
        if not parts:
            return []
        key = tuple((name, array.shape[1:]) for name, array in parts[0][0].items())
        requests = [(values, rows, budget_s) for values, rows in parts]
        return self._executor.submit(self._served, requests, key, latch)


def _parts(inputs: Arrays, rows: int, batch_max: int) -> list[tuple[Arrays, int]]:
    if rows <= batch_max:
        return [(inputs, rows)]
    return [
        (
            {name: array[start : start + batch_max] for name, array in inputs.items()},
            min(batch_max, rows - start),
        )
        for start in range(0, rows, batch_max)
    ]


def _outcome(members: Sequence[Member]) -> Arrays | CarpoolError:
    if not members:
        return BadRequest("the model runs step by step: expected one sequence in a request")
    outcomes = [member.outcome for member in members]
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            return fault(outcome)
    arrays = [outcome for outcome in outcomes if not isinstance(outcome, Exception)]
    if len(arrays) == 1:
        return arrays[0]
    try:
        return {name: np.concatenate([each[name] for each in arrays]) for name in arrays[0]}
    except ValueError as error:
        logs.say_failure("putting a request's parts together", error)
        return fault(error)
