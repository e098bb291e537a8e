"""Applications in the order of their objectives, and how long batches of neighbours stay open.

If every window is an objective less the same allowance ``x``, the shape of a batch's deadline does
not depend on ``x``: a batch of applications i to j stays open for ``V - x`` in the mean, with

    V = s_i + integral from s_i of  sum_{k: s_k > u} eta_k  exp(-sum_{k: s_k < u} r_k (u - s_k)) du

(`merged_windows`, with ``u = d + x``). Up to ``s_j`` the exponent does not depend on j, so that all
groups of neighbours follow from sums over one matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scaler.core.arrivals.processes import Times

__all__ = ["pooled"]


def pooled(rates_rps: Times, slos_s: Times) -> tuple[Times, Times]:
    """Rates and pooled objectives of all groups of neighbours.

    Args:
        rates_rps: Requests per second of each application, above 0; shape ``(n,)``.
        slos_s: Objectives in seconds, ascending; shape ``(n,)``.

    Returns:
        The total rate and ``V`` in seconds of applications i to j, both of shape ``(n, n)``; they
        mean nothing where ``j < i``.
    """
    upto = np.concatenate([[0.0], np.cumsum(rates_rps)])
    # Row i, column m: the stretch from objective m to the next, of groups that begin with i.
    over = np.maximum(upto[None, 1:] - upto[:-1, None], rates_rps[None, :])
    inside = np.arange(len(slos_s))[None, :] >= np.arange(len(slos_s))[:, None]
    lengths = np.append(np.diff(slos_s), 0.0)
    exponents = np.where(inside, over * lengths, 0.0)
    begins = np.exp(-(np.cumsum(exponents, axis=1) - exponents))
    stretches = np.where(inside, begins * -np.expm1(-exponents) / over, 0.0)
    # Those of i to j that are still open in stretch m: upto[j + 1] - upto[m + 1].
    spans = _before(stretches)
    weighted = upto[None, 1:] * spans - _before(stretches * upto[None, 1:])
    extra = np.maximum(weighted, 0.0) / over
    return over, np.asarray(slos_s[:, None] + extra)


def _before(values: Times) -> Times:
    """Sums over all columns before."""
    return np.asarray(np.cumsum(values, axis=1) - values)
