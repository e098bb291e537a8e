"""Clock that advances when it is read, a policy that is slow by it, and one that fails."""

from __future__ import annotations

from carpool.scaling import FunctionLoad, PerFunctionPolicy, Proposal

__all__ = ["Broken", "Slow", "now"]

_PLANNING = 100
_time = [0.0]


def now() -> float:
    """Advance the clock by one and return its time."""
    _time[0] += 1.0
    return _time[0]


class Slow(PerFunctionPolicy):
    """Policy that proposes one instance after a long time."""

    def propose_one(self, load: FunctionLoad) -> Proposal:
        """Propose one instance and advance the clock."""
        _time[0] += _PLANNING
        return Proposal({load.sizes[0]: 1})


class Broken(PerFunctionPolicy):
    """Policy that always fails."""

    def propose_one(self, load: FunctionLoad) -> Proposal:
        """Raise ValueError."""
        message = f"no idea for {load.name}"
        raise ValueError(message)
