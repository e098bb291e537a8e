"""Environment variables that fit the threads of an instance's libraries to its cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faas_stack.partition.resources import Resources

__all__ = ["environment"]

_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def environment(each: Resources) -> dict[str, str]:
    """Return default environment variables of an instance, which a function's own override.

    The handler sizes ONNX Runtime's threads by ``carpool_cpu``: it is set for ``limits.cpu``, too,
    as for the label.
    """
    if each.threads is None:
        return {}
    return {**dict.fromkeys(_POOLS, str(each.threads)), "carpool_cpu": f"{each.cores:g}"}
