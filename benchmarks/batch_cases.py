"""References for the law of batches: workloads, simulated batches, and Eq. 9 as printed.

The workloads are Poisson arrivals and BATCH's two bursty workloads (SC'20; squared coefficients of
variation of gaps 6 and 10). Bursts last for minutes, so a day has too few of them to determine a
quantile to a hundredth. Therefore the lengths of phases are not drawn independently: each comes
from its own stratum of the exponential distribution, in random order, and all together are scaled
to their mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from carpool.arrivals.markov import mmpp2
from carpool.arrivals.processes import Poisson
from carpool.latency.linear import Linear
from carpool.plan import InstanceClass, Plan, Route
from scaler.control.planning_result import PlanningResult
from scaler.planning.cost import Prices
from scaler.policies.batch.batch_law import BatchLaw, Service
from scaler.scenarios.scenario import App, Function, Scenario
from simulator.settings import Settings
from simulator.simulation import Simulation
from tests.scaler import printed_batch as printed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.arrivals.map_counts import Markovian
    from carpool.arrivals.processes import ArrivalProcess, Seed, Times
    from scaler.planning.snapshot import Snapshot
    from simulator.latency_histogram import Latencies

__all__ = ["MODEL", "SHARES", "WORKLOADS", "Stratified", "Workload", "exact_ms", "guessed"]
__all__ += ["printed_ms", "seconds_by_size", "simulated", "simulated_ms", "stratified_phases"]

SHARES = (0.5, 0.95, 0.99)
MODEL = Linear(0.05, 0.01)
_INSTANCES = 400


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload and its arrival process.

    Attributes:
        name: Short description.
        process: The arrival process.
        rates, switch: Of an MMPP(2), for the solver's guess; None for Poisson.
    """

    name: str
    process: Markovian
    rates: tuple[float, float] | None = None
    switch: tuple[float, float] | None = None


WORKLOADS = (
    Workload("Poisson 65/s", Poisson(65.0)),
    Workload("SCV 6", mmpp2((10, 120), (0.05, 0.05)), (10, 120), (0.05, 0.05)),
    Workload("SCV 10", mmpp2((10, 200), (0.01, 0.01)), (10, 200), (0.01, 0.01)),
)


class Stratified:
    """A sample path of a process whose phase lengths, taken together, follow their law.

    Args:
        rates, switch: As of `mmpp2`.
        requests: Approximate number of requests.
        seed: Seed of the random numbers.

    Attributes:
        until_s: End of the path.
        mean_rate: Requests per second in the long run.
        phase_rates: None, as the times are fixed.
    """

    def __init__(
        self, rates: tuple[float, float], switch: tuple[float, float], requests: int, seed: int
    ) -> None:
        draw = np.random.default_rng(seed)
        self.mean_rate = mmpp2(rates, switch).mean_rate
        self.phase_rates = None
        lengths = stratified_phases(switch, requests / self.mean_rate, draw)
        ends = np.cumsum(lengths.ravel())
        counts = draw.poisson(np.array(rates) * lengths).ravel()
        starts, spans = np.repeat(ends - lengths.ravel(), counts), np.repeat(lengths, counts)
        self._times = np.sort(starts + spans * draw.random(counts.sum()))
        self.until_s = float(ends[-1])

    def rate(self, at_s: float) -> float:
        """See `ArrivalProcess.rate`."""
        del at_s
        return self.mean_rate

    def chunks(self, until_s: float, seed: Seed) -> Iterator[Times]:
        """See `ArrivalProcess.chunks`; the path's own seed is used."""
        del seed
        yield self._times[self._times < until_s]


def stratified_phases(
    switch: tuple[float, float], span_s: float, draw: np.random.Generator
) -> Times:
    """Return lengths of phases in seconds that, taken together, follow their law.

    Args:
        switch: How often a second each of the two phases is left.
        span_s: About how long all phases last.
        draw: Source of random numbers.

    Returns:
        Shape (cycles, 2).
    """
    cycles = max(1, round(span_s / (1 / switch[0] + 1 / switch[1])))
    shares = (np.arange(cycles)[:, None] + draw.random((cycles, 2))) / cycles
    lengths: Times = draw.permuted(-np.log1p(-shares), axis=0)
    lengths /= lengths.mean(axis=0) * np.array(switch)
    return lengths


class _Constant:
    """Planner with instances of one size and one window."""

    def __init__(self, size: int, window_s: float, instances: int) -> None:
        kind = InstanceClass("a", 1.0, size, instances)
        self._made = Plan("f", 1, "constant", (kind,), (Route("*", {"a": 1.0}, window_s),))

    def plan(self, snapshot: Snapshot) -> PlanningResult:
        """Return the same plan every time."""
        return PlanningResult({load.name: load.plan or self._made for load in snapshot.functions})


def simulated(
    workload: Workload,
    size: int,
    window_s: float,
    requests: int,
    seed: int,
    instances: int = _INSTANCES,
) -> Latencies:
    """Return the simulated latencies of about ``requests`` requests."""
    process: ArrivalProcess = workload.process
    horizon_s = requests / process.mean_rate
    if workload.rates and workload.switch:
        process = path = Stratified(workload.rates, workload.switch, requests, seed)
        horizon_s = path.until_s
    function = Function("f", "m", MODEL, 1e6, 0.99, size, (App("all", 1e6, process),))
    scenario = Scenario(
        Path("benchmark"), (), Prices(), {"m": MODEL}, (function,), {}, horizon_s, seed
    )
    settings = Settings(interval_s=horizon_s / 8)
    outcome = Simulation(scenario, _Constant(size, window_s, instances), settings).run()
    return outcome.functions[0].total.latencies


def simulated_ms(
    workload: Workload, size: int, window_s: float, requests: int, seed: int
) -> tuple[float, ...]:
    """Return the simulated latency quantiles, by `SHARES`."""
    latencies = simulated(workload, size, window_s, requests, seed)
    return tuple(1000 * (latencies.quantile_s(share) or 0.0) for share in SHARES)


def exact_ms(process: Markovian, size: int, window_s: float) -> tuple[float, ...]:
    """Return the same quantiles by the exact law."""
    quantiles_s = BatchLaw(process, size, window_s).quantiles(
        SHARES, Service.fixed(seconds_by_size(size))
    )
    return tuple((1000 * quantiles_s).tolist())


def printed_ms(workload: Workload, size: int, window_s: float) -> tuple[float, ...]:
    """Return the same quantiles by Eq. 9."""
    requests, fill_s = guessed(workload, size, window_s)
    return tuple(
        1000 * printed.eq9_quantile(share, requests, seconds_by_size(size), window_s, fill_s)
        for share in SHARES
    )


def guessed(workload: Workload, size: int, window_s: float) -> tuple[Times, float]:
    """Return the solver's share of requests by batch size, and its time to fill a batch."""
    process = workload.process
    phases = np.ones(1)
    if workload.rates and workload.switch:
        phases = printed.solver_phases(workload.rates, workload.switch, size, window_s)
    requests = printed.by_request(printed.solver_sizes(process, phases, size, window_s))
    return requests, min(printed.tau(process, size), window_s)


def seconds_by_size(size: int) -> list[float]:
    """Return the execution times of batches of up to ``size``."""
    return [MODEL.base_s + MODEL.per_item_s * number for number in range(1, size + 1)]
