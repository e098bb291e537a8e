"""A clock that goes on when it is looked at, a policy that takes long by it, and one that fails."""

from __future__ import annotations

from carpool.scaling import FunctionLoad, PerFunctionPolicy, Proposal

__all__ = ["Broken", "Slow", "now"]

_PLANNING = 100
_time = [0.0]


def now() -> float:
    """One more than the last time."""
    _time[0] += 1.0
    return _time[0]


class Slow(PerFunctionPolicy):
    """One instance, after a long time."""

    def propose_one(self, load: FunctionLoad) -> Proposal:
        """As the contract has it."""
        _time[0] += _PLANNING
        return Proposal({load.sizes[0]: 1})


class Broken(PerFunctionPolicy):
    """Never a proposal."""

    def propose_one(self, load: FunctionLoad) -> Proposal:
        """As the contract has it."""
        message = f"no idea for {load.name}"
        raise ValueError(message)
