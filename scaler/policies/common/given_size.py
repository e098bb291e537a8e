"""Resolves an instance size that is given wholly or in part, even if it misses the objective.

`carpool.sizing`, in contrast, lists only the sizes that meet an objective.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.recent import Recent, Same

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.scaling import FunctionLoad, Size

__all__ = ["given_size", "unknown_size"]

_SHOWN = 8  # sizes named in a message
_KNOWN: Recent[Size | None] = Recent(4096)  # more than a scaler has functions


def given_size(
    load: FunctionLoad,
    cpu: float | None = None,
    gpu: float | None = None,
    batch: int | None = None,
) -> Size | None:
    """Return the smallest size with the given properties, and the highest throughput among those.

    Sizes that execute a batch and the one before it within the objective are preferred, then those
    that execute one batch, then all others. None if the model knows no such size.
    """
    key = (load.percentile, load.slo_s, load.max_batch, load.prices, cpu, gpu, batch)
    return _KNOWN.of((Same(load.model), *key), lambda: _given_size(load, cpu, gpu, batch))


def unknown_size(
    load: FunctionLoad,
    cpu: float | None = None,
    gpu: float | None = None,
    batch: int | None = None,
) -> str:
    """Return sentences on a size that `given_size` has not found: what was asked, what there is."""
    wanted = _described(cpu, gpu) + ([f"batches of {batch}"] if batch else [])
    configurations = list(load.model.configurations(max(load.max_batch, batch or 1)))
    known = sorted({(c.cpu, c.gpu) for c in configurations})
    largest = max([c.batch for c in configurations], default=0)
    if batch and batch > largest:
        return f"The policy asks for batches of {batch}, expected at most {largest} for this model."
    there = "; ".join(" and ".join(_described(*size)) for size in known[:_SHOWN]) or "none"
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return (
        f"The policy asks for a size of {' and '.join(wanted)}, which the model does not have: "
        f"its sizes are {there}{more}. Set the policy's parameters cpu and gpu to one of them."
    )


def _described(cpu: float | None, gpu: float | None) -> list[str]:
    cores = [] if cpu is None else [f"{cpu:g} core{'' if cpu == 1 else 's'}"]
    if gpu == 0 and not cores:
        return ["no GPU"]
    return cores + ([f"{gpu:g} % of a GPU"] if gpu else [])


def _given_size(
    load: FunctionLoad, cpu: float | None, gpu: float | None, batch: int | None
) -> Size | None:
    sizes = [
        size for tried in _configurations(load, cpu, gpu, batch) if (size := load.size(*tried))
    ]
    for executions in (2, 1, 0):
        in_time = [
            size
            for size in sizes
            if (executions if size.batch > 1 else min(executions, 1)) * size.exec_s <= load.slo_s
        ]
        if in_time:
            return min(in_time, key=lambda size: (size.units, -size.rate_rps, size.batch))
    return None


def _configurations(
    load: FunctionLoad, cpu: float | None, gpu: float | None, batch: int | None
) -> Iterator[tuple[int, float, float]]:
    """Return the model's configurations with the given values substituted."""
    known = list(load.model.configurations(max(load.max_batch, batch or 1)))
    batches = sorted({c.batch for c in known} if batch is None else {batch})
    sizes = sorted({(c.cpu if cpu is None else cpu, c.gpu if gpu is None else gpu) for c in known})
    return ((tried, *size) for size in sizes for tried in batches)
