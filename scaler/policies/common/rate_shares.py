"""Divides a rate among instances, and releases instances that have too little load.

INFless's dispatch (ASPLOS'22, section 3.3), with ``Rmin`` and ``Rmax`` the sums of the instances'
lowest and highest rates: (i) beyond ``Rmax`` each gets its highest rate and more instances are
needed; (ii) from ``theta`` to there each gets its highest rate, less an equal part of its range;
(iii) below ``theta`` instances are released until (ii) holds. The paper prints ``theta`` in two
ways. Here, as in its code, it is that of constraint (7), ``alpha Rmax + (1 - alpha) Rmin``, near
the upper bound.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from carpool.scaling import Size

__all__ = ["rate_high", "rate_low", "rates", "release", "theta"]


def rate_high(instances: Counter[Size]) -> float:
    """Return ``Rmax``: the throughput of the instances together."""
    return sum(size.rate_rps * count for size, count in instances.items())


def rate_low(instances: Counter[Size]) -> float:
    """Return ``Rmin``: the rate that the instances need for their batches to be full in time."""
    return sum(size.min_rps * count for size, count in instances.items())


def theta(instances: Counter[Size], alpha: float) -> float:
    """Return the rate below which there are too many instances."""
    return alpha * rate_high(instances) + (1 - alpha) * rate_low(instances)


def rates(rate_rps: float, instances: Counter[Size]) -> dict[Size, float]:
    """Return the rate of one instance of each size, cases (i) and (ii); below ``Rmin`` by need."""
    high, low = rate_high(instances), rate_low(instances)
    if rate_rps >= high:
        return {size: size.rate_rps for size in instances}
    if rate_rps < low:
        return {size: size.min_rps * rate_rps / low for size in instances}
    part = (high - rate_rps) / (high - low)
    return {size: size.rate_rps - part * (size.rate_rps - size.min_rps) for size in instances}


def release(
    instances: Counter[Size],
    needed_rps: Callable[[Counter[Size]], float],
    alpha: float,
    least: int = 0,
    most: float = math.inf,
    value: Callable[[Size], float] = lambda size: size.efficiency,
) -> Counter[Size]:
    """Release instances until none has too little load, case (iii), and return the others.

    The least efficient instances are released first.

    Args:
        instances: The current instances.
        needed_rps: Returns the throughput that given instances must have.
        alpha: How close ``theta`` is to ``Rmax``.
        least: Number of instances to keep in any case.
        most: Maximum number of instances to keep; the fastest are kept.
        value: Returns the value of an instance of a size relative to what is saved.
    """
    left = instances.copy()
    needed = needed_rps(left)
    while left.total() > least and needed < theta(left, alpha):
        spare_rps = rate_high(left) - needed
        unneeded = [size for size in left if size.rate_rps <= spare_rps]
        if not unneeded:
            break
        worst = min(unneeded, key=lambda size: (value(size), -size.units))
        left[worst] -= 1
        if not left[worst]:
            del left[worst]
            needed = needed_rps(left)
    while left.total() > most:
        left[min(left, key=lambda size: size.rate_rps)] -= 1
        left = +left
    return left
