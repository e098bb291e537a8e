"""How many threads an instance's libraries are told to use, so that they fit what it may use."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faas_stack.partition.resources import Resources

__all__ = ["environment"]

_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def environment(each: Resources) -> dict[str, str]:
    """Defaults for the environment of an instance; what a function sets itself goes before them.

    ``carpool_cpu`` is what our own handler sizes ONNX Runtime's threads by: it is there for
    ``limits.cpu`` too, as it is for the label.
    """
    if each.threads is None:
        return {}
    return {**dict.fromkeys(_POOLS, str(each.threads)), "carpool_cpu": f"{each.cores:g}"}
