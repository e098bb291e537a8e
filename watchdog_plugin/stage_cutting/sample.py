"""Makes seeded random inputs of a model, with the requested sizes of free dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from watchdog_plugin.protocols.tensors import Array, Arrays, Signature, TensorSpec

__all__ = ["feeds"]


def feeds(
    signature: Signature, rows: int, sizes: Mapping[str, int] | None = None, more: int = 0
) -> Arrays:
    """Return inputs of ``rows`` rows.

    Args:
        signature: Signature of the model.
        rows: Size of the first dimension if it is free.
        sizes: Sizes of other free dimensions, by name; 8 if not given.
        more: Added to the sizes of other free dimensions.
    """
    rng = np.random.default_rng(rows)
    return {
        name: _values(rng, spec, rows, sizes or {}, more) for name, spec in signature.inputs.items()
    }


def _values(
    rng: np.random.Generator, spec: TensorSpec, rows: int, sizes: Mapping[str, int], more: int
) -> Array:
    shape = [
        size if isinstance(size, int) else sizes.get(str(size), 8) + more for size in spec.shape
    ]
    if spec.any_rows:
        shape[0] = rows
    if spec.dtype == object:
        return np.full(shape, "", object)
    if spec.dtype.kind == "f":
        return rng.standard_normal(shape).astype(spec.dtype)
    return rng.integers(0, 2, shape).astype(spec.dtype)  # an index that every table has
