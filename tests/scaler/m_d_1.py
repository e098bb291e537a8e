"""The exact law of waits in an M/D/1 queue, to check formulas and simulations against."""

from __future__ import annotations

import math

__all__ = ["in_time"]


def in_time(rate: float, exec_s: float, wait_s: float) -> float:
    """Return the share of waits up to ``wait_s`` in an M/D/1 queue (Erlang, 1909)."""
    terms = (
        (rate * (number * exec_s - wait_s)) ** number
        / math.factorial(number)
        * math.exp(-rate * (number * exec_s - wait_s))
        for number in range(math.floor(wait_s / exec_s) + 1)
    )
    return (1 - rate * exec_s) * math.fsum(terms)
