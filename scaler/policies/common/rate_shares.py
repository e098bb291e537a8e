"""How a rate is shared among instances, and when instances have too little to do.

INFless's dispatch (ASPLOS'22, section 3.3), with ``Rmin`` and ``Rmax`` the sums of what instances
need and can take: (i) beyond ``Rmax`` each gets all it can take and more are needed; (ii) from
``theta`` to there each gets its most, less an equal part of its window; (iii) below ``theta``
instances are released until (ii) holds. The paper prints ``theta`` in two ways; meant, and in its
code, is the one of constraint (7): ``alpha Rmax + (1 - alpha) Rmin``, near the upper bound.
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
    """``Rmax``: what the instances can take together."""
    return sum(size.rate_rps * count for size, count in instances.items())


def rate_low(instances: Counter[Size]) -> float:
    """``Rmin``: what they need for their batches to be full in time."""
    return sum(size.min_rps * count for size, count in instances.items())


def theta(instances: Counter[Size], alpha: float) -> float:
    """The rate below which there are too many instances."""
    return alpha * rate_high(instances) + (1 - alpha) * rate_low(instances)


def rates(rate_rps: float, instances: Counter[Size]) -> dict[Size, float]:
    """What one instance of each size gets, cases (i) and (ii); too little is shared by need."""
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
    worth: Callable[[Size], float] = lambda size: size.efficiency,
) -> Counter[Size]:
    """Case (iii): what is left once nobody has too little to do, the least efficient gone first.

    Args:
        instances: What there is.
        needed_rps: What given instances must be able to take.
        alpha: How near ``theta`` is to the most that instances can take.
        least: So many are kept in any case.
        most: No more than so many are, the quickest.
        worth: What an instance of a size is worth for what it saves.
    """
    left = instances.copy()
    needed = needed_rps(left)
    while left.total() > least and needed < theta(left, alpha):
        spare_rps = rate_high(left) - needed
        unneeded = [size for size in left if size.rate_rps <= spare_rps]
        if not unneeded:
            break
        worst = min(unneeded, key=lambda size: (worth(size), -size.units))
        left[worst] -= 1
        if not left[worst]:
            del left[worst]
            needed = needed_rps(left)
    while left.total() > most:
        left[min(left, key=lambda size: size.rate_rps)] -= 1
        left = +left
    return left
