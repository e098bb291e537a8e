"""Results of functions under one policy, whether in simulated time or on a running stack.

The numbers that policies are compared by are made from this alone (`simulator.metrics`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from simulator.outcomes import Outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler.scenarios.scenario import Function
    from simulator.reserved_cost import ReservedCost

__all__ = ["FunctionRecord", "Moment", "ScenarioResult"]


class Moment(NamedTuple):
    """A function at the end of an interval.

    Attributes:
        at_s: When that was.
        rate_rps: Requests per second that came in the interval.
        ready, loading: Instances.
        missed: Requests that missed their objective, from the start.
        cost: What all of it cost, from the start.
    """

    at_s: float
    rate_rps: float
    ready: int
    loading: int
    missed: float
    cost: float


@dataclass(slots=True, kw_only=True)
class FunctionRecord:
    """One function.

    Attributes:
        function: As the scenario has it.
        reserved: What having its instances took.
        total: Outcomes of its requests.
        moments: How it was at the end of each interval.
        requests_by_app: How many requests of each application there were.
    """

    function: Function
    reserved: ReservedCost
    total: Outcomes = field(default_factory=Outcomes)
    moments: list[Moment] = field(default_factory=list)
    requests_by_app: Counter[str] = field(default_factory=Counter)

    @property
    def requests(self) -> int:
        """How many requests came."""
        return self.requests_by_app.total()


@dataclass(slots=True)
class ScenarioResult:
    """Results of a scenario under one policy.

    Attributes:
        functions: One record a function.
        planning_ms: How long each planning round took, in real time.
        fragmentation: The unallocated share of servers in use, after each round.
        unplaced: Requests per second that the policy found no room for, the most of all rounds.
        simulated: Requests that were simulated one by one.
        priced: Whether it is known what anything costs.
    """

    functions: Sequence[FunctionRecord]
    planning_ms: list[float] = field(default_factory=list)
    fragmentation: list[float] = field(default_factory=list)
    unplaced: dict[str, float] = field(default_factory=dict)
    simulated: int = 0
    priced: bool = True
