"""One function in a simulation: its queue, its instances, its load, and what has come of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.scaling import Application, FunctionLoad, Instances
from simulator.instance import Phase
from simulator.outcomes import Outcomes
from simulator.results import Moment, Outcome, Results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler.arrivals.processes import Times
    from simulator.fleet import Fleet
    from simulator.rates import Rates
    from simulator.simulated_sidecar import SimulatedSidecar

__all__ = ["FunctionRun", "Simulated"]


@dataclass(slots=True, kw_only=True)
class FunctionRun(Results):
    """One function.

    Attributes:
        fleet: Its instances.
        lane: Its queue.
        rates: What a scaler measures.
    """

    fleet: Fleet
    lane: SimulatedSidecar
    rates: Rates

    def view(self, now: float, *, processes_known: bool) -> FunctionLoad:
        """What a scaling policy sees of it."""
        function, plan = self.function, self.fleet.plan
        rates = zip(function.apps, self.rates.at(now), strict=True)
        return FunctionLoad(
            name=function.name,
            model=function.model,
            slo_s=function.slo_s,
            percentile=function.percentile,
            max_batch=function.max_batch,
            apps=tuple(
                Application(
                    app.name,
                    app.slo_s,
                    rate,
                    app.arrivals if processes_known else None,
                    app.accuracy,
                )
                for app, rate in rates
            ),
            plan=plan,
            instances=self._instances(),
            queued=self.lane.waiting,
        )

    def settle(self) -> Outcomes:
        """Add what was served since the last time to the total; returns it."""
        served, self.lane.served = self.lane.served.settle(), Outcomes()
        self.total.add(served)
        return served

    def note(self, start_s: float, end_s: float, times: Sequence[Times]) -> None:
        """An interval is over, with these arrivals of each application."""
        arrived = sum(map(len, times))
        for app, own in zip(self.function.apps, times, strict=True):
            self.came[app.name] += len(own)
        loading = sum(i.phase is Phase.LOADING for i in self.fleet.alive.values())
        rate_rps = arrived / (end_s - start_s)
        ready = len(self.fleet.alive) - loading
        cost = (
            self.total.cost + self.held.cost + self.held.accrued(self.fleet.alive.values(), end_s)
        )
        self.moments.append(Moment(end_s, rate_rps, ready, loading, self.total.missed, cost))

    def _instances(self) -> dict[str, Instances]:
        counts: dict[str, list[int]] = {}
        for instance in self.fleet.alive.values():
            count = counts.setdefault(instance.kind.name, [0, 0])
            count[instance.phase is Phase.LOADING] += 1
        return {name: Instances(*count) for name, count in counts.items()}


@dataclass(slots=True)
class Simulated(Outcome):
    """What came of a scenario in simulated time; its tracks are all that there was."""

    tracks: list[FunctionRun]
