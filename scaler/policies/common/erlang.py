"""Computes the number of instances with which a batch hardly ever waits for one.

In HarmonyBatch (IWQoS'24) a function starts as many instances as there are batches. If instances
are started beforehand, batches that arrive at random and find all of them busy wait: Erlang's C.
Batches that close after a window arrive more evenly than at random, so this is on the safe side.
"""

from __future__ import annotations

import math

__all__ = ["enough", "waiting_share"]

_MANY = 1000.0  # busy instances from which on their number is practically normal
_NORMAL_MARGIN = 0.5


def waiting_share(instances: int, busy: float) -> float:
    """Return the share of batches that find all instances busy (Erlang's C); 1 if overloaded.

    Args:
        instances: Number of instances.
        busy: Mean number of busy ones: batches per second times seconds of each.
    """
    if busy >= instances:
        return 1.0
    if busy <= 0:
        return 0.0
    inverse = 1.0  # 1 / Erlang's B
    for number in range(1, instances + 1):
        inverse = 1.0 + number / busy * inverse
        if inverse == math.inf:  # also in all further steps
            return 0.0
    blocked = 1.0 / inverse
    return blocked * instances / (instances - busy * (1.0 - blocked))


def enough(busy: float, waiting: float = 1e-3) -> int:
    """Return the least number of instances for which at most a share ``waiting`` of batches waits.

    Args:
        busy: Mean number of busy instances.
        waiting: Between 0 and 1.
    """
    if busy <= 0:
        return 0
    if busy > _MANY:  # square-root staffing, with the bound of a normal tail
        return math.ceil(busy + math.sqrt(-2 * math.log(waiting) * busy) + _NORMAL_MARGIN)
    inverse, number = 1.0, 0
    while True:
        number += 1
        inverse = 1.0 + number / busy * inverse
        blocked = 1.0 / inverse
        if number > busy and blocked * number <= waiting * (number - busy * (1.0 - blocked)):
            return number
