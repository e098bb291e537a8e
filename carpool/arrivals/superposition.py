"""Superposition of several arrival processes as one Markovian process.

Its phases are all combinations of theirs (Kronecker sums of D0 and of D1), so there may be many. If
there are too many, only the burstiest processes are kept, and the others are approximated by
Poisson processes at their rates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from carpool.arrivals.map_counts import matrices
from carpool.arrivals.markov import MarkovArrivals
from carpool.arrivals.processes import Poisson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.arrivals.map_counts import Markovian

__all__ = ["superposed"]

_PHASES = 8


def superposed(processes: Sequence[Markovian]) -> Markovian:
    """Return the superposition of processes; without any, a process without requests."""
    plain_rps = sum(one.rate_rps for one in processes if isinstance(one, Poisson))
    bursty = [one for one in processes if isinstance(one, MarkovArrivals)]
    bursty.sort(key=lambda one: -one.dispersion * one.mean_rate)
    d0, d1 = matrices(Poisson(0.0))
    for one in bursty:
        if len(one.silent) == 1 or len(d0) * len(one.silent) > _PHASES:
            plain_rps += one.mean_rate
            continue
        other0, other1 = matrices(one)
        here, there = np.eye(len(d0)), np.eye(len(other0))
        d0 = np.kron(d0, there) + np.kron(here, other0)
        d1 = np.kron(d1, there) + np.kron(here, other1)
    if len(d0) == 1:
        return Poisson(plain_rps)
    d0, d1 = d0 - plain_rps * np.eye(len(d0)), d1 + plain_rps * np.eye(len(d0))
    return MarkovArrivals(tuple(map(tuple, d0.tolist())), tuple(map(tuple, d1.tolist())))
