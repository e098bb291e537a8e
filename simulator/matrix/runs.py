"""Simulate the policies in the cells that are missing, with the same requests for each policy."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.errors import ConfigError
from scaler.command_policy import ReportingGuard
from scaler.policy_choice import PREWARM, chosen_policy, prewarm_maker
from simulator.matrix.bound import lower_bound
from simulator.matrix.rows import Row
from simulator.metrics import measured
from simulator.reports.comparison_table import unplaced
from simulator.settings import Settings
from simulator.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scaler.scenarios.scenario import Scenario
    from simulator.matrix.cells import Catalogue, Cell
    from simulator.matrix.rows import Rows

__all__ = ["Runs", "simulate"]


@dataclass(frozen=True)
class Runs:
    """The runs to make.

    Attributes:
        catalogue: Traces and models.
        cells: Cells, in this order.
        policies: Names as in `simulator.matrix.cells.POLICIES`, or of other origins.
        seeds: Seeds of the requests.
        horizon_s: Simulated time of each run, in seconds.
    """

    catalogue: Catalogue
    cells: Sequence[Cell]
    policies: Sequence[str]
    seeds: Sequence[int]
    horizon_s: float

    def run(self, rows: Rows, tell: Callable[[str], None]) -> None:
        """Add the missing rows, beginning with the first seed in all cells.

        Raises:
            ConfigError: a policy that cannot be used.
        """
        whole = len(self.seeds) * len(self.cells) * len(self.policies)
        began, added, done = time.monotonic(), 0, 0
        for seed, cell in itertools.product(self.seeds, self.cells):
            known = {each.policy: each for each in rows.find(cell.name, self.horizon_s, seed)}
            missing = [policy for policy in self.policies if policy not in known]
            done += len(self.policies) - len(missing)
            for made in self._made(cell, seed, missing, [each.bound for each in known.values()]):
                rows.add(made)
                added, done = added + 1, done + 1
                left_s = (time.monotonic() - began) / added * (whole - done)
                came = f"{made.over_bound:.2f} of the bound, {made.missed:.2%} missed"
                tell(
                    f"{done} of {whole}: {made.cell}, seed {seed}, {made.policy}: "
                    f"{made.failure or came}, {made.cpu_s:.1f} s; about {left_s / 60:.0f} min left"
                )

    def _made(
        self, cell: Cell, seed: int, policies: Sequence[str], bounds: Sequence[float]
    ) -> Iterator[Row]:
        if not policies:
            return
        scenario = self.catalogue.scenario(cell, self.horizon_s, seed)
        bound = bounds[0] if bounds else lower_bound(scenario)
        for policy in policies:
            yield simulate(cell.name, scenario, policy, bound)


def simulate(
    cell: str,
    scenario: Scenario,
    policy: str,
    bound: float,
    progress: Callable[[float], None] = lambda _: None,
) -> Row:
    """Simulate one policy in a cell, as `carpool simulate` does.

    Args:
        cell: Name of the cell.
        scenario: The scenario to simulate.
        policy: Name of the policy, as in the scenario or of any origin.
        bound: Lower bound of the cost.
        progress: Called occasionally with the fraction done, 0 to 1; an exception it raises stops
            the run.

    Raises:
        ConfigError: the policy cannot be used at all.
    """
    guard = ReportingGuard(policy, chosen_policy(policy, scenario.policies))
    settings = Settings(prewarm=prewarm_maker(PREWARM, {}))
    began = time.process_time()
    where = (cell, scenario.horizon_s, scenario.seed, policy)
    try:
        result = Simulation(scenario, guard, settings, progress).run()
    except ConfigError as error:  # of a policy in one cell; the others continue
        took_s = time.process_time() - began
        return Row(*where, 0, 0.0, bound, 1.0, None, None, 0.0, took_s, str(error))
    metrics = measured(result)
    return Row(
        *where,
        requests=metrics["requests"],
        cost=metrics["cost"],
        bound=bound,
        missed=metrics["slo_miss_ratio"] or 0.0,
        mean_batch=metrics["mean_batch"],
        p99_ms=metrics["latency_ms"]["p99"],
        planning_ms=metrics["planning_ms"] or 0.0,
        cpu_s=time.process_time() - began,
        unplaced="; ".join(unplaced(result)),
    )
