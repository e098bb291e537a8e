"""Measures how long each stage takes by size of batch, where it will run."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from carpool.lazy_batching.batch_times import every_size
from carpool.lazy_batching.program import Node, NodeType, Program
from watchdog_plugin import logs
from watchdog_plugin.function import LoadError

if TYPE_CHECKING:
    from collections.abc import Callable

    from watchdog_plugin.protocols.tensors import Arrays
    from watchdog_plugin.stage_execution.model import StagedModel

__all__ = ["Unmeasured", "measured"]

_ROUNDS = 5
_STEPS = 3  # of a decoder in a round
_ENOUGH_S = 0.5  # for a size of batch


class Unmeasured(LoadError):
    """The model fails on what it is tried with, which its requests need not be like."""


def measured(
    name: str, model: StagedModel, feeds: Callable[[int], Arrays], batch_max: int
) -> Program:
    """The model with its stages' times.

    Args:
        name: of the model.
        model: what is measured.
        feeds: inputs of so many rows.
        batch_max: most rows in one batch.

    Raises:
        Unmeasured: a stage fails.
    """
    sizes = [1]
    while sizes[-1] < batch_max:
        sizes.append(min(2 * sizes[-1], batch_max))
    by_size: dict[int, list[float]] = {}
    for size in sizes:
        given = feeds(size)
        try:
            by_size[size] = _stage_seconds(model, given)
        except Exception as error:
            shapes = ", ".join(f"{key} {value.shape}" for key, value in given.items())
            msg = f"{name} fails when it is measured with {shapes}: {logs.describe(error)}"
            raise Unmeasured(msg) from error
    nodes = [
        Node(every_size({size: each[stage] for size, each in by_size.items()}, batch_max), kind)
        for stage, kind in enumerate(model.kinds)
    ]
    return Program(name, nodes)


def _stage_seconds(model: StagedModel, values: Arrays) -> list[float]:
    """The least of some runs of each stage, each behind the one before it.

    So each finds in the caches what it finds when requests run: an encoder that follows a decoder's
    step takes half as long again as one that follows itself. A decoder does follow itself.
    """
    least = [math.inf] * len(model.kinds)
    began_s = time.perf_counter()
    for _ in range(_ROUNDS):
        given = following = values
        for stage, kind in enumerate(model.kinds):
            for _ in range(_STEPS if kind is NodeType.DECODER else 1):
                start_s = time.perf_counter()
                following = model.run(stage, given).values
                least[stage] = min(least[stage], time.perf_counter() - start_s)
            given = following
        if time.perf_counter() - began_s > _ENOUGH_S:
            break
    return least
