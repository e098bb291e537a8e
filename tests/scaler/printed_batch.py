"""BATCH (SC'20) as printed and as in its authors' solver, for comparison.

Not used for planning: Eq. 9 is not a distribution if one more request lengthens a batch by less
than a window, and the solver guesses the phase in which a batch begins.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from carpool.arrivals.map_counts import Counting, matrices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.arrivals.map_counts import Markovian
    from carpool.arrivals.processes import Times

__all__ = ["by_request", "eq7", "eq9", "eq9_quantile", "solver_phases", "solver_sizes", "tau"]


def eq7(rate_rps: float, size: int, window_s: float) -> Times:
    """Return the shares of batches of 1, 2 and so on requests, for Poisson arrivals."""
    mean = rate_rps * window_s
    partial = [math.exp(-mean) * mean**k / math.factorial(k) for k in range(size - 1)]
    return np.array([*partial, 1 - sum(partial)])


def by_request(sizes: Times) -> Times:
    """Return the shares of requests in batches of each size (Eq. 8)."""
    weighed = sizes * np.arange(1, len(sizes) + 1)
    share: Times = weighed / weighed.sum()
    return share


def tau(process: Markovian, size: int) -> float:
    """Return the mean time in which a batch fills (Eq. 10)."""
    return (size - 1) / process.mean_rate


def solver_phases(
    rates: Sequence[float], switch: Sequence[float], size: int, window_s: float
) -> Times:
    """Return the shares of phases in which a batch begins, as the solver guesses for an MMPP(2)."""
    batches = [
        rate / leave / min(size, math.floor(rate * window_s + 1))
        for rate, leave in zip(rates, switch, strict=True)
    ]
    return np.array(batches) / sum(batches)


def solver_sizes(process: Markovian, phases: Times, size: int, window_s: float) -> Times:
    """Return the shares of sizes of batches that begin in these phases (Eq. 11 and 12)."""
    within = Counting(*matrices(process), size).at([window_s]).within[0]
    partial = (phases @ within.sum(axis=-1).T)[: size - 1]
    return np.append(partial, 1 - partial.sum())


def eq9(
    time_s: float, requests: Times, seconds: Sequence[float], window_s: float, fill_s: float
) -> float:
    """Return the share of requests with a latency of at most ``time_s`` (Eq. 9).

    Args:
        time_s: Latency.
        requests: Share of requests in batches of each size, as from `by_request`.
        seconds: Execution time of batches of each size.
        window_s: T.
        fill_s: tau, at most T.
    """
    started = [at for at, exec_s in enumerate(seconds) if exec_s <= time_s]
    if not started:
        return 0.0
    last = started[-1]
    whole = float(requests[:last].sum())
    waited_s = time_s - seconds[last]
    if last == 0:
        part = 1.0 if waited_s >= window_s else 0.0
    else:
        limit_s = fill_s if last == len(seconds) - 1 else window_s
        part = min(waited_s / limit_s, 1.0) if limit_s > 0 else 1.0
    return whole + float(requests[last]) * part


def eq9_quantile(
    share: float, requests: Times, seconds: Sequence[float], window_s: float, fill_s: float
) -> float:
    """Return the latency at which Eq. 9 first reaches ``share``."""
    low, high = 0.0, seconds[-1] + window_s
    for _ in range(60):
        middle = (low + high) / 2
        reached = eq9(middle, requests, seconds, window_s, fill_s) >= share
        low, high = (low, middle) if reached else (middle, high)
    return high
