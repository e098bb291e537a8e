"""Explains shares of GPUs on servers that divide them into equal slots, for readers of a plan."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from carpool.plan import Plan
    from scaler.planning.placement import Node

__all__ = ["rounded_shares"]

_WHOLE = 100.0
_ROUNDING = 1e-6


def rounded_shares(plan: Plan | None, nodes: Iterable[Node]) -> Iterator[str]:
    """Yield a sentence for each class of a plan that takes more of a GPU than it asks for."""
    slot_counts = sorted({node.gpu_slots for node in nodes if node.gpus and node.gpu_slots})
    for each in plan.classes if plan else ():
        for slots in slot_counts if each.gpu else ():
            taken = math.ceil(each.gpu * slots / _WHOLE - _ROUNDING)
            percent = taken * _WHOLE / slots
            if percent > each.gpu + _ROUNDING:
                yield (
                    f"{each.name} takes {percent:.3g} % of a GPU for {each.gpu:.3g} %: "
                    f"{taken} of {slots} slots"
                )
