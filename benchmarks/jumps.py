"""``python -m benchmarks jumps``: what flash crowds cost if they are not known in advance.

In the reserved flash crowds of the sixth of all cells that ``carpool compare --matrix`` runs: the
least share of all requests that is missed at the first jump, by the number of instances that run
then, and what the instances beyond the first cost until then, in multiples of the lower bound.

Instances are of the size that serves the most for its price. They execute full batches without a
pause, in order, and as many others as are needed are ready one loading time after the jump.
Requests of other times are not counted.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, NamedTuple

from carpool.arrivals.processes import Trace, timestamps
from scaler.planning.cost import billing
from simulator.matrix.bound import lower_bound
from simulator.matrix.cells import catalogue
from simulator.matrix.models import LOAD_S

if TYPE_CHECKING:
    from carpool.arrivals.processes import Times
    from scaler.scenarios.scenario import Scenario

__all__ = ["main"]

_MOST = 4  # instances
_JUMP = 2.0  # times the rate of the second before


class _Size(NamedTuple):
    rate_rps: float
    single_s: float
    price_per_s: float


def main(argv: list[str]) -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks jumps", description=__doc__)
    parser.add_argument("--seeds", default="41,42", help="of the requests (%(default)s)")
    parser.add_argument("--horizon", type=float, default=300.0, help="seconds each (%(default)s)")
    flags = parser.parse_args(argv)
    counts = range(1, _MOST + 1)
    sys.stdout.write(f"| cell | seed | {' | '.join(f'{n} running' for n in counts)} |\n")
    sys.stdout.write(f"|---|---|{'---:|' * _MOST}\n")
    known = catalogue()
    for cell in known.cells(1 / 6):
        if (cell.trace, cell.billing) != ("flash-crowd", "reserved"):
            continue
        for seed in map(int, flags.seeds.split(",")):
            found = _of(known.scenario(cell, flags.horizon, seed), counts)
            columns = [f"{missed:.2%}, +{more:.2f}" for missed, more in found]
            sys.stdout.write(f"| {cell.name} | {seed} | {' | '.join(columns)} |\n")
    return 0


def _of(scenario: Scenario, counts: range) -> list[tuple[float, float]]:
    """Return the least share missed and the relative cost until the jump, for each count."""
    (function,) = scenario.functions
    (app,) = function.apps
    assert isinstance(app.arrivals, Trace)  # as flash crowds are
    times = timestamps(app.arrivals, scenario.horizon_s, (scenario.seed, 1, 0))
    size, bound = _best(scenario), lower_bound(scenario)
    jump_s = next(
        start
        for start, rate, after in zip(
            app.arrivals.starts_s[1:],
            app.arrivals.rates_rps,
            app.arrivals.rates_rps[1:],
            strict=False,
        )
        if after > _JUMP * rate
    )
    wait_s = app.slo_s - size.single_s
    ready_s = jump_s + LOAD_S - wait_s  # who arrives later can wait for the new instances
    early = times[(times >= jump_s) & (times < ready_s)]
    return [
        (
            _missed(early, count * size.rate_rps, wait_s) / len(times),
            (count - 1) * size.price_per_s * jump_s / bound,
        )
        for count in counts
    ]


def _best(scenario: Scenario) -> _Size:
    """Return the size that serves the most within the objective for its price."""
    (function,) = scenario.functions
    rule, model, found = billing(scenario.prices), function.model, []
    for batch, cpu, gpu in model.configurations(function.max_batch):
        single_s, exec_s = (model.predict(n, cpu, gpu, 0.5) for n in (1, batch))
        if single_s is not None and exec_s is not None and exec_s <= function.slo_s:
            price = rule.lifetime(model.resources(batch, cpu, gpu), 1.0)
            found.append(_Size(batch / exec_s, single_s, price))
    return max(found, key=lambda size: size.rate_rps / size.price_per_s)


def _missed(arrived: Times, rate_rps: float, wait_s: float) -> int:
    """Return how many are not begun within ``wait_s`` of their arrival, in order, at this rate."""
    free_s, missed = 0.0, 0
    for at_s in arrived.tolist():
        begun_s = max(free_s, at_s)
        if begun_s > at_s + wait_s:
            missed += 1
        else:
            free_s = begun_s + 1 / rate_rps
    return missed
