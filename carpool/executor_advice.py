"""Advice on the executor of a model, whole batches or stage by stage, from its batch times.

With stages, a new request can join a running batch (docs/policies/lazybatching.md). That helps
only where batching saves time, and where waiting for the running batch would miss an objective.
Pure; knows neither functions nor how times were measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ExecutorAdvice", "better_executor"]

_SAVES = 0.9  # a batch saves if it takes less than this share of its requests run one by one


class ExecutorAdvice(NamedTuple):
    """An executor, and a sentence with the reason."""

    executor: str
    why: str


def better_executor(
    seconds: Callable[[int], float | None], batch_max: int, slo_s: float | None
) -> ExecutorAdvice | None:
    """Return the executor to prefer; None if too little is known.

    Args:
        seconds: Duration of a batch of the given size; None if not known.
        batch_max: Largest batch.
        slo_s: Tightest objective; None if there is none.
    """
    if batch_max == 1:
        return ExecutorAdvice("graph", "a batch is a single request, so no request could join it")
    sizes = [size for size in range(batch_max, 1, -1) if seconds(size) is not None]
    alone_s, full_s = seconds(1), seconds(sizes[0]) if sizes else None
    if alone_s is None or full_s is None:
        return None
    size, times = sizes[0], full_s / alone_s
    if times > _SAVES * size:
        cost = f"a batch of {size} takes {times:.3g} times as long as one"
        why = f"{cost}, so no request gains by joining"
        return ExecutorAdvice("graph", why)
    if slo_s is None:
        return None
    both = f"a batch of {size} and its own, {1000 * full_s:.4g} ms each"
    if 2 * full_s > slo_s:
        return ExecutorAdvice(
            "lazy", f"a request that just misses a batch waits for {both}, and is late"
        )
    return ExecutorAdvice(
        "graph", f"a request that just misses a batch waits for {both}, and is in time"
    )
