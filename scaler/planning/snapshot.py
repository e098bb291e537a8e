"""The input of planning at one moment: loads, instances, servers and prices.

Amounts are measured or forecast by the creator of the snapshot. What a policy sees of it, and in
which form, is in `carpool.scaling`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from carpool.scaling import FunctionLoad
    from scaler.planning.cost import Prices
    from scaler.planning.placement import Cluster

__all__ = ["Snapshot"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The input of planning at one moment.

    Attributes:
        now_s: Seconds, on any axis.
        functions: Loads of the functions to plan for.
        cluster: The servers with all placed instances; None if capacity is unlimited.
        prices: Prices of resources.
        beginning: Whether nothing runs yet and planned instances are available at once, so that
            growth is not limited.
    """

    now_s: float
    functions: tuple[FunctionLoad, ...]
    cluster: Cluster | None
    prices: Prices
    beginning: bool = False
