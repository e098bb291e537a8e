"""Example of a scaling policy: enough instances of the cheapest size, and a reserve."""

from dataclasses import dataclass
from math import ceil

from carpool.scaling import FunctionLoad, PerFunctionPolicy, Proposal


class Headroom(PerFunctionPolicy):
    """Enough instances of the cheapest size, and a reserve."""

    @dataclass(frozen=True)
    class Params:
        reserve: float = 0.2  # part of the rate

    def propose_one(self, load: FunctionLoad) -> Proposal:
        size = min(load.sizes, key=lambda size: size.price_per_s / size.rate_rps)
        count = ceil(load.rate_rps * (1 + self.params.reserve) / size.rate_rps)
        return Proposal({size: count}, explain=[f"{load.rate_rps:.4g} requests/s and a reserve."])
