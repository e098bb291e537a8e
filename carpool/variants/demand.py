"""Demands of requests that choose their variant themselves, and the names they are counted under.

Scaling policies see demands as applications of their own, named by their requirements:
``latency=0.1,accuracy=0.75``, ``variant=small-int8-t1``. Values are rounded, so that there are few
names.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from typing import NamedTuple, Self

from carpool.variants.selection import Requirements

__all__ = ["VariantDemand"]

_FIELDS = ("latency", "accuracy", "cost")
_PAIR = re.compile(r"(latency|accuracy|cost|variant)=([^,\s=]+)")
_LEAST = 1e-15
_STEPS = [s * 10.0**power for power in range(-15, 16) for s in (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)]


class VariantDemand(NamedTuple):
    """Demand of a request for variants of its model.

    Attributes:
        latency_s: Maximum seconds until the response.
        accuracy: Minimum accuracy.
        cost: Maximum cost.
        variant: The only variant to use, whatever the other values; empty for any that fits.
    """

    latency_s: float = math.inf
    accuracy: float = 0.0
    cost: float = math.inf
    variant: str = ""

    @property
    def requirements(self) -> Requirements:
        """Requirements that a variant must meet."""
        return Requirements(self.latency_s, self.accuracy, self.cost)

    @property
    def name(self) -> str:
        """Name that the demand is counted under; `parse` reads it."""
        if self.variant:
            return f"variant={self.variant}"
        given = {
            "latency": "" if self.latency_s == math.inf else f"{self.latency_s:.5g}",
            "accuracy": "" if not self.accuracy else f"{self.accuracy:.6g}",
            "cost": "" if self.cost == math.inf else f"{self.cost:.4g}",
        }
        return ",".join(f"{key}={text}" for key, text in given.items() if text) or "latency=inf"

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Return the demand of this name; None if the name is an application's."""
        pairs = [_PAIR.fullmatch(part) for part in name.split(",")]
        texts = {match[1]: match[2] for match in pairs if match}
        if len(texts) != len(pairs):
            return None
        try:
            amounts = {key: float(texts[key]) for key in _FIELDS if key in texts}
        except ValueError:
            return None
        if not all(amount >= 0 for amount in amounts.values()):  # nor is it a number
            return None
        return cls(
            amounts.get("latency", math.inf),
            min(amounts.get("accuracy", 0.0), 1.0),
            amounts.get("cost", math.inf),
            texts.get("variant", ""),
        )

    def coarse(self, latency_s: float, accuracy: float, cost: float) -> Self:
        """Return the demand rounded to be stricter, unless no variant would meet it then.

        Args:
            latency_s: Lowest latency of any variant that meets the demand.
            accuracy: Lowest accuracy of any variant that meets the demand.
            cost: Lowest cost of any variant that meets the demand.
        """
        return self._replace(
            latency_s=min(max(_down(self.latency_s), _up(latency_s)), self.latency_s),
            accuracy=max(math.floor(accuracy * 1e6) / 1e6, 0.0) if self.accuracy else 0.0,
            cost=min(max(_down(self.cost), _up(cost)), self.cost),
        )


def _down(amount: float) -> float:
    """Return the amount rounded down to a step."""
    if not _LEAST < amount < math.inf:
        return amount
    return _STEPS[max(bisect_right(_STEPS, amount * (1 + 1e-9)) - 1, 0)]


def _up(amount: float) -> float:
    """Return the amount rounded up to four digits; 0 for a negligible amount."""
    if not _LEAST < amount < math.inf:
        return 0.0
    power = 10.0 ** (math.floor(math.log10(amount)) - 3)
    return math.ceil(amount / power - 1e-9) * power
