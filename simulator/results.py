"""Results of functions under one policy, in simulated time or on a running stack.

All metrics that policies are compared by are computed from this alone (`simulator.metrics`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from simulator.outcomes import Outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.plan import Plan
    from scaler.scenarios.scenario import Function
    from simulator.reserved_cost import ReservedCost

__all__ = ["FunctionRecord", "Moment", "ScenarioResult"]


class Moment(NamedTuple):
    """A function at the end of an interval.

    Attributes:
        at_s: End of the interval.
        rate_rps: Requests per second in the interval.
        ready, loading: Number of instances.
        missed: Requests that missed their objective since the start.
        cost: Cost since the start.
    """

    at_s: float
    rate_rps: float
    ready: int
    loading: int
    missed: float
    cost: float


@dataclass(slots=True, kw_only=True)
class FunctionRecord:
    """Results of one function.

    Attributes:
        function: The function as in the scenario.
        reserved: Cost of keeping its instances.
        total: Outcomes of its requests.
        moments: Its state at the end of each interval.
        requests_by_app: Number of requests by application.
    """

    function: Function
    reserved: ReservedCost
    total: Outcomes = field(default_factory=Outcomes)
    moments: list[Moment] = field(default_factory=list)
    requests_by_app: Counter[str] = field(default_factory=Counter)

    @property
    def requests(self) -> int:
        """Number of requests."""
        return self.requests_by_app.total()


@dataclass(slots=True)
class ScenarioResult:
    """Results of a scenario under one policy.

    Attributes:
        functions: One record per function.
        planning_ms: Duration of each planning round, in real time.
        fragmentation: Unallocated share of the servers in use, after each round.
        unplaced: Largest rate in any round, in requests per second, that could not be placed.
        unplaced_reasons: Why instances of a function were not proposed at all, where the policy
            says so.
        simulated: Number of requests simulated one by one.
        priced: Whether costs are known.
        start: Plans with the instances that there were when a live run began.
    """

    functions: Sequence[FunctionRecord]
    planning_ms: list[float] = field(default_factory=list)
    fragmentation: list[float] = field(default_factory=list)
    unplaced: dict[str, float] = field(default_factory=dict)
    unplaced_reasons: dict[str, str] = field(default_factory=dict)
    simulated: int = 0
    priced: bool = True
    start: dict[str, Plan] = field(default_factory=dict)
