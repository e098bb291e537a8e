"""Computes how long the batches of applications with neighbouring objectives stay open.

If every window is an objective less the same allowance ``x``, the shape of a batch's deadline does
not depend on ``x``: a batch of applications i to j stays open for ``V - x`` in the mean, with

    V = s_i + integral from s_i of  sum_{k: s_k > u} eta_k  exp(-sum_{k: s_k < u} r_k (u - s_k)) du

(`merged_windows`, with ``u = d + x``); its deviation is the same for every ``x``. Up to ``s_j`` the
exponent does not depend on j, so all groups of neighbours follow from sums over one matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from carpool.arrivals.processes import Times

__all__ = ["Pooled", "pooled"]

_SHORT = 1e-4  # exponents below which the series is more accurate than the formula


class Pooled(NamedTuple):
    """Groups of neighbours, as arrays of one shape.

    Attributes:
        rates_rps: Their total rates.
        open_s: ``V``.
        spread_s: Standard deviation of how long their batches stay open.
        slos_s: Their tightest objectives.
    """

    rates_rps: Times
    open_s: Times
    spread_s: Times
    slos_s: Times


def pooled(rates_rps: Times, slos_s: Times) -> Pooled:
    """Return all groups of neighbours.

    Args:
        rates_rps: Requests per second of each application, above 0; shape ``(n,)``.
        slos_s: Objectives in seconds, ascending; shape ``(n,)``.

    Returns:
        Applications i to j, shape ``(n, n)``; undefined if ``j < i``.
    """
    upto = np.concatenate([[0.0], np.cumsum(rates_rps)])
    # Row i, column m: the stretch from objective m to the next, of groups that begin with i.
    over = np.maximum(upto[None, 1:] - upto[:-1, None], rates_rps[None, :])
    inside = np.arange(len(slos_s))[None, :] >= np.arange(len(slos_s))[:, None]
    lengths = np.append(np.diff(slos_s), 0.0)
    exponents = np.where(inside, over * lengths, 0.0)
    begins = np.where(inside, np.exp(-(np.cumsum(exponents, axis=1) - exponents)), 0.0)
    first = -np.expm1(-exponents) / over
    second = np.where(
        exponents < _SHORT,
        lengths**2 * (0.5 - exponents / 3),
        (first - lengths * np.exp(-exponents)) / over,
    )
    since = slos_s[None, :] - slos_s[:, None]

    def still_open(stretches: Times) -> Times:
        """Sum over the stretches, each for those of i to j whose objectives are beyond it."""
        upto_j = upto[None, 1:]
        spans = upto_j * _before(stretches) - _before(stretches * upto_j)
        return np.asarray(np.maximum(spans, 0.0) / over)

    extra = still_open(begins * first)
    squares = 2 * still_open(begins * (since * first + second))
    spread_s = np.sqrt(np.maximum(squares - extra**2, 0.0))
    slos = np.broadcast_to(slos_s[:, None], over.shape)
    return Pooled(over, slos + extra, spread_s, slos)


def _before(values: Times) -> Times:
    """Return the sum of all earlier columns, for each column."""
    return np.asarray(np.cumsum(values, axis=1) - values)
