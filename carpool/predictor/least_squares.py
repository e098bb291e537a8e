"""Non-negative least squares, by Lawson and Hanson's active set method (1974)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["non_negative"]


def non_negative(matrix: Array, target: Array, near: Array | None = None) -> Array:
    """Return the coefficients x >= 0 that bring ``matrix @ x`` nearest to ``target``.

    Args:
        matrix: One row per equation.
        target: Right-hand side of each equation.
        near: Non-negative coefficients to start from, close to the solution.
    """
    scale = np.sqrt((matrix**2).sum(axis=0))
    scale[scale == 0] = 1.0
    scaled = matrix / scale
    gram, right = scaled.T @ scaled, scaled.T @ target
    size = len(right)
    gram[np.diag_indices(size)] += 1e-10
    chosen, refused = np.zeros(size, bool), np.zeros(size, bool)
    x = np.zeros(size)
    if near is not None:
        x = near * scale
        chosen = x > 0
        x = _settled(gram, right, chosen, x)
    for _ in range(10 * size):
        gain = np.where(chosen | refused, -np.inf, right - gram @ x)
        best = int(gain.argmax())
        if gain[best] <= 1e-9 * max(1.0, float(abs(right).max())):
            break
        chosen[best] = True
        x = _settled(gram, right, chosen, x)
        refused[:] = False if chosen[best] else refused
        refused[best] = not chosen[best]  # dropped at once: its gain was a rounding error
    coefficients: Array = x / scale
    return coefficients


def _settled(gram: Array, right: Array, chosen: NDArray[np.bool_], x: Array) -> Array:
    """Return the optimum over the chosen coefficients, dropping those that fall below zero."""
    while True:
        index = np.flatnonzero(chosen)
        free = np.zeros_like(x)
        if len(index):
            free[index] = np.linalg.solve(gram[np.ix_(index, index)], right[index])
        low = index[free[index] <= 0]
        if not len(low):
            return free
        step = min(x[i] / (x[i] - free[i]) if x[i] > free[i] else 0.0 for i in low)
        x = x + step * (free - x)
        x[low[x[low] <= 1e-14]] = 0.0  # noqa: PLR2004  rounding
        chosen &= x > 0
