"""The draft of a proposal: one function's instances during a round.

How many instances of which size there should be is up to the policies.
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

_LISTED = 6  # sizes named in a sentence


@dataclass(slots=True)
class Draft:
    """Instances that a function is going to have.

    Attributes:
        load: Load of the function.
        sizes: Sizes that its instances may have.
        instances: Instances that it has or is to get.
        needed_rps: Throughput that the instances must have.
        explain: Sentences for an operator.
    """

    load: FunctionLoad
    sizes: tuple[Size, ...]
    instances: Counter[Size] = field(default_factory=Counter)
    needed_rps: float = 0.0
    explain: list[str] = field(default_factory=list)

    @property
    def missing_rps(self) -> float:
        """Throughput that the instances lack, in requests per second."""
        missing = self.needed_rps - rate_shares.rate_high(self.instances)
        return missing if missing > 1e-9 * self.needed_rps else 0.0

    @property
    def unplaced_rps(self) -> float:
        """Part of the function's arrival rate that corresponds to the missing throughput."""
        rate_rps = self.load.rate_rps
        return rate_rps * self.missing_rps / self.needed_rps if self.needed_rps else 0.0


def running(load: FunctionLoad, sizes: Sequence[Size]) -> Counter[Size]:
    """Count the existing instances of these sizes, in all pools."""
    own = {size: size for size in sizes}
    counts: Counter[Size] = Counter()
    for size, there in load.running.items():
        known = own.get(replace(size, pool=0) if size.pool else size)
        if known:
            counts[known] += there.total
    return counts


def listed(instances: Counter[Size]) -> str:
    """Return the instances in words: ``4 x b4-c2-g10 and 1 x b1-c2``."""
    parts: Sequence[str] = [f"{count} x {size.name}" for size, count in instances.items()]
    if len(parts) > _LISTED:
        parts = [*parts[: _LISTED - 1], f"{len(parts) - _LISTED + 1} other sizes"]
    return " and ".join(parts) if parts else "none"
