"""What is planned for at one moment: loads, instances, servers and prices.

Amounts are measured or forecast by the maker of the snapshot; nothing here says how. What of it a
policy sees, and in which form, is in `carpool.scaling`.
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
    """Everything at one moment.

    Attributes:
        now_s: Seconds, on any axis.
        functions: What is to be planned for.
        cluster: The servers with everything placed on them; None: capacity is unlimited.
        prices: What resources cost.
        beginning: Nothing runs yet, and what is planned is there at once: there are no steps.
    """

    now_s: float
    functions: tuple[FunctionLoad, ...]
    cluster: Cluster | None
    prices: Prices
    beginning: bool = False
