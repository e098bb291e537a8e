"""Measures how long each stage takes by batch size, on the machine where it will run."""

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
    from watchdog_plugin.stage_execution.staged_model import StagedModel

__all__ = ["Unmeasured", "measured"]

_ROUNDS = 5
_STEPS = 3  # steps of a decoder in a round
_ENOUGH_S = 0.5  # time for each batch size


class Unmeasured(LoadError):
    """Raised when a model fails on the inputs made for measuring, unlike those of real requests."""


def measured(
    name: str, model: StagedModel, feeds: Callable[[int], Arrays], batch_max: int
) -> Program:
    """Measure a model's stages, and return them with their times.

    Args:
        name: Name of the model.
        model: The model to measure.
        feeds: Returns inputs with a given number of rows.
        batch_max: Maximum batch size in rows.

    Raises:
        Unmeasured: A stage fails.
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
        Node(
            every_size({size: each[stage] for size, each in by_size.items()}, batch_max), node_type
        )
        for stage, node_type in enumerate(model.node_types)
    ]
    return Program(name, nodes)


def _stage_seconds(model: StagedModel, values: Arrays) -> list[float]:
    """Return the minimum time of several runs of each stage, each after the one before it.

    So the caches are in the state in which requests find them: an encoder that runs after a decoder
    step takes 50 % longer than one that runs after itself. Decoder steps do run after each other.
    """
    least = [math.inf] * len(model.node_types)
    began_s = time.perf_counter()
    for _ in range(_ROUNDS):
        given = following = values
        for stage, node_type in enumerate(model.node_types):
            for _ in range(_STEPS if node_type is NodeType.DECODER else 1):
                start_s = time.perf_counter()
                following = model.run(stage, given).values
                least[stage] = min(least[stage], time.perf_counter() - start_s)
            given = following
        if time.perf_counter() - began_s > _ENOUGH_S:
            break
    return least
