"""Effects of several threads: which operators they share, and how a layer is divided among them.

ONNX Runtime wakes another thread only where its estimate of the work justifies that, so an operator
below a threshold takes as long as on one thread. The thresholds are the runtime's own: 64 Ki
multiplications of a matrix product, some ten thousand elements of a loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Flags = NDArray[np.bool_]

__all__ = ["divided", "shared"]

_MULTIPLICATIONS = 65_536.0
_ELEMENTS: Mapping[str, float] = {"rows": 16_384.0, "copy": 30_000.0, "elementwise": 70_000.0}


def shared(family: str, sizes: Array) -> Flags:
    """Return which of these operators run on several threads.

    Args:
        family: As in `features`.
        sizes: Array of operators by sizes.
    """
    is_shared: Flags = np.ones(len(sizes), bool)
    if family in ("dense", "unfolded"):
        calls, rows, columns, depth = sizes.T[:4]
        is_shared = (calls > 1) | (rows * columns * depth >= _MULTIPLICATIONS)
    elif family == "recurrent":
        is_shared = sizes[:, 1] > 1
    elif family in _ELEMENTS:
        is_shared = sizes[:, 0] >= _ELEMENTS[family]
    return is_shared


def divided(family: str, sizes: Array, threads: int) -> Array:
    """Return the sizes that one thread sees, where the work is not divided evenly.

    A recurrent layer is divided by the rows of its batch.
    """
    if family != "recurrent" or threads == 1:
        return sizes
    per_thread = sizes.copy()
    per_thread[:, 1] = np.ceil(sizes[:, 1] / threads)
    return per_thread
