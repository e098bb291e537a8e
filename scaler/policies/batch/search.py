"""Grid search for the cheapest or fastest instance size, batch size and window, as in BATCH.

BATCH (SC'20) minimizes the cost with a percentile of latency below an objective (Eq. 2), or the
percentile with the cost of a request below a budget (Eq. 3), over memory, batch size and window.
Here the instance sizes of the latency model take the place of memory. Every choice is evaluated by
the exact law (`batch_grid`); the second problem is solved by bisecting the objective of the first.

The cost of a request is that of a mean batch over its mean size. (The authors' code uses the cost
of a batch of a high percentile's size, which no request pays.) If instances are paid for rather
than executions, it is the cost of as many as the busiest phase keeps busy, plus a reserve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from carpool.arrivals.map_counts import matrices
from scaler.policies.batch.batch_grid import BatchGrid
from scaler.policies.batch.batch_law import BatchLaw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.arrivals.map_counts import Markovian
    from carpool.arrivals.processes import Times
    from carpool.scaling import Billing, Resources
    from scaler.policies.batch.sizes import InstanceSize

__all__ = ["BatchSearch", "Choice", "examined"]

_RESERVE = 2.0  # standard deviations of the number of busy instances
_HALVINGS = 24
_TIE = 1e-9


@dataclass(frozen=True, slots=True)
class Choice:
    """An instance size, a batch size and a window.

    Attributes:
        instance_size: The instance size.
        batch_size: Requests in a full batch.
        window_s: Seconds after its first request at which a batch leaves at the latest.
        cost: Mean cost of a request.
        late: Share of requests that are late, rounded up to the search's grid.
    """

    instance_size: InstanceSize
    batch_size: int
    window_s: float
    cost: float
    late: float


class BatchSearch:
    """All choices for one load.

    Args:
        process: Arrival process of requests.
        instance_sizes: The instance sizes, at least one.
        billing: Billing rule of executions and instances.
        longest_s: The longest window, above 0.
        steps: Number of windows up to it that are tried.
    """

    def __init__(
        self,
        process: Markovian,
        instance_sizes: Sequence[InstanceSize],
        billing: Billing,
        longest_s: float,
        steps: int,
    ) -> None:
        self._instance_sizes = instance_sizes
        self._billing = billing
        largest = max(len(instance_size.known) for instance_size in instance_sizes)
        self._grid = BatchGrid(process, largest, longest_s, steps)
        self._process = process
        self._costs = [self._cost(instance_size) for instance_size in instance_sizes]

    def within(self, objective_s: float, miss: float) -> list[Choice]:
        """Return the cheapest choice of each instance size that is rarely late, cheapest first.

        Args:
            objective_s: Latency that is in time.
            miss: Share of requests that may be late.
        """
        return self._best(objective_s, miss, math.inf)

    def quickest(self, budget: float, miss: float) -> tuple[float, list[Choice]]:
        """Return the least latency that is affordable for a share of requests.

        Args:
            budget: Maximum cost of a request.
            miss: Share of requests that may be later.

        Returns:
            Seconds, and the choices with it, cheapest first; ``inf`` and none if all exceed the
                budget.
        """
        low, high = 0.0, self._longest_s()
        choices = self._best(high, miss, budget)
        if not choices:
            return math.inf, []
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            possible = self._best(middle, miss, budget)
            low, high = (low, middle) if possible else (middle, high)
            choices = possible or choices
        return high, choices

    def cheapest_cost(self) -> float:
        """Return the least possible cost of a request, however late it is."""
        return min(float(cost.min()) for cost in self._costs)

    def _best(self, objective_s: float, miss: float, budget: float) -> list[Choice]:
        choices = [
            choice
            for instance_size, cost in zip(self._instance_sizes, self._costs, strict=True)
            if (choice := self._best_of(instance_size, cost, objective_s, miss, budget))
        ]
        return sorted(choices, key=lambda choice: choice.cost)

    def _best_of(
        self,
        instance_size: InstanceSize,
        cost: Times,
        objective_s: float,
        miss: float,
        budget: float,
    ) -> Choice | None:
        """Return the cheapest choice; ties go to the fewest late, then to the smallest."""
        if float(instance_size.service.seconds.min()) > objective_s or not (cost <= budget).any():
            return None
        late = self._grid.late(objective_s, instance_size.service)
        good = np.where((late <= miss) & (cost <= budget), cost, math.inf)
        least = float(good.min())
        if math.isinf(least):
            return None
        ties = np.where(good <= least * (1 + _TIE), late, math.inf)
        size, window = np.unravel_index(int(ties.argmin()), ties.shape)
        return Choice(
            instance_size,
            int(size) + 1,
            float(self._grid.windows_s[window]),
            float(cost[size, window]),
            float(late[size, window]),
        )

    def _cost(self, instance_size: InstanceSize) -> Times:
        """Return the cost of a request by size and window; infinite for unknown sizes."""
        cost = np.full((len(instance_size.known), len(self._grid.windows_s)), math.inf)
        by_resources: dict[Resources, list[int]] = {}
        for number in np.flatnonzero(instance_size.known).tolist():
            by_resources.setdefault(instance_size.resources[number], []).append(number)
        busy_s = self._grid.per_batch(instance_size.service.mean_s())
        sizes = self._grid.mean_size[: len(instance_size.known)]
        for resources, numbers in by_resources.items():
            batch = self._grid.per_batch(_batch_costs(instance_size, resources, self._billing))
            lifetime = self._billing.lifetime(resources, 1.0)
            total = batch / sizes
            if lifetime:
                instances = _instances(self._process, busy_s / sizes)
                total = total + instances * lifetime / _rate(self._process)
            cost[numbers] = total[numbers]
        return cost

    def _longest_s(self) -> float:
        slowest = max(
            float(instance_size.service.seconds.max()) for instance_size in self._instance_sizes
        )
        return slowest + float(self._grid.windows_s[-1])


def examined(
    process: Markovian,
    choice: tuple[InstanceSize, int, float],
    objective_s: float,
    billing: Billing,
) -> Choice:
    """Return the cost and the share of late requests of a choice that no search has made.

    Args:
        process: The arrival process.
        choice: The instance size, a batch size known for it, and the window.
        objective_s: Latency objective.
        billing: What executions and instances cost.
    """
    instance_size, size, window_s = choice
    law = BatchLaw(process, size, window_s)
    resources = instance_size.resources[size - 1]
    cost = float(law.sizes @ _batch_costs(instance_size, resources, billing)[:size]) / law.mean_size
    lifetime = billing.lifetime(resources, 1.0)
    if lifetime:
        busy_s = law.sizes @ instance_size.service.mean_s()[:size] / law.mean_size
        cost += float(_instances(process, busy_s)) * lifetime / _rate(process)
    late = float(law.late([objective_s], instance_size.service)[0])
    return Choice(instance_size, size, window_s, cost, late)


def _batch_costs(instance_size: InstanceSize, resources: Resources, billing: Billing) -> Times:
    """Return the mean cost of a batch of each size, shape (sizes,)."""
    costs = [
        [billing.execution(resources, exec_s) for exec_s in row]
        for row in instance_size.service.seconds.tolist()
    ]
    mean: Times = np.array(costs) @ instance_size.service.weights
    return mean


def _instances(process: Markovian, busy_per_request_s: Times) -> Times:
    """Return the approximate number of instances needed in the busiest phase."""
    busy = float(matrices(process)[1].sum(axis=1).max()) * busy_per_request_s
    needed: Times = np.maximum(np.ceil(busy + _RESERVE * np.sqrt(busy)), 1.0)
    return needed


def _rate(process: Markovian) -> float:
    return max(process.mean_rate, _TIE)
