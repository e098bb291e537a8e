"""What a policy is about to propose: one function's instances during a round.

How many instances of which size there should be is the policies' business.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from scaler.policies.common import rate_shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.scaling import FunctionLoad, Size

__all__ = ["Draft", "listed", "running"]


@dataclass(slots=True)
class Draft:
    """What a function will have.

    Attributes:
        load: The function's.
        sizes: What its instances may be.
        instances: What it has, or is to get.
        needed_rps: What they must be able to take.
        explain: Sentences for an operator.
    """

    load: FunctionLoad
    sizes: tuple[Size, ...]
    instances: Counter[Size] = field(default_factory=Counter)
    needed_rps: float = 0.0
    explain: list[str] = field(default_factory=list)

    @property
    def missing_rps(self) -> float:
        """What the instances cannot take of what they must."""
        missing = self.needed_rps - rate_shares.rate_high(self.instances)
        return missing if missing > 1e-9 * self.needed_rps else 0.0

    @property
    def unplaced_rps(self) -> float:
        """The part of the function's rate that goes with what is missing."""
        rate_rps = self.load.rate_rps
        return rate_rps * self.missing_rps / self.needed_rps if self.needed_rps else 0.0


def running(load: FunctionLoad, sizes: Sequence[Size]) -> Counter[Size]:
    """The instances there are of those sizes, whichever pool they are in."""
    own = {size: size for size in sizes}
    found: Counter[Size] = Counter()
    for size, there in load.running.items():
        known = own.get(replace(size, pool=0) if size.pool else size)
        if known:
            found[known] += there.total
    return found


def listed(instances: Counter[Size], most: int = 6) -> str:
    """Instances in words: ``4 x b4-c2-g10 and 1 x b1-c2``."""
    parts: Sequence[str] = [f"{count} x {size.name}" for size, count in instances.items()]
    if len(parts) > most:
        parts = [*parts[: most - 1], f"{len(parts) - most + 1} other sizes"]
    return " and ".join(parts) if parts else "none"
