"""Computes the number of instances for the choice of a batch search, and predicts the results.

The search assumes an instance for every batch. This module finds the least number of instances with
which waiting for busy ones makes no more requests late than the objective allows (`queueing`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from carpool.scaling import Predicted, Quantiles, Size
from scaler.policies.batch.batch_law import BatchLaw
from scaler.policies.batch.queueing import LimitedInstances, least_instances

if TYPE_CHECKING:
    from carpool.arrivals.map_counts import Markovian
    from carpool.scaling import Billing, LatencyModel
    from scaler.policies.batch.search import Choice

__all__ = ["BatchFleet"]

_QUANTILES = (0.5, 0.95, 0.99)


class BatchFleet:
    """The instances of one choice.

    Args:
        process: Arrival process of requests.
        choice: The choice of the search.
        model: Latency model of batches.
        percentile: Share of requests that must be in time.

    Attributes:
        choice: As given.
        size: The size of its instances, for plans; always the same object.
    """

    def __init__(
        self, process: Markovian, choice: Choice, model: LatencyModel, percentile: float
    ) -> None:
        self.choice = choice
        self._rate_rps = process.mean_rate
        self._law = BatchLaw(process, choice.batch_size, choice.window_s)
        self._crowd = LimitedInstances(process, self._law, choice.instance_size.service)
        self._needed: dict[tuple[float, float], int] = {}
        self._predicted: dict[tuple[int, float], Predicted] = {}
        self.size = _size(choice, model, percentile)

    @property
    def busiest(self) -> int:
        """Least number of instances that keeps up with the busiest phase."""
        return max(1, math.ceil(self._crowd.busiest))

    def needed(self, objective_s: float, miss: float) -> int:
        """Return the fewest instances with which at most a share ``miss`` of requests is late."""
        key = objective_s, miss
        if key not in self._needed:
            self._needed[key] = least_instances(self._crowd, objective_s, miss)
        return self._needed[key]

    def predicted(self, instances: int, objective_s: float, billing: Billing) -> Predicted:
        """Return the prediction for a number of instances, computed once for each number."""
        key = instances, objective_s
        if key not in self._predicted:
            self._predicted[key] = self._expected(instances, objective_s, billing)
        return self._predicted[key]

    def _expected(self, instances: int, objective_s: float, billing: Billing) -> Predicted:
        cost = self.choice.cost
        lifetime = billing.lifetime(self.size.resources, 1.0)
        if lifetime:
            cost = instances * lifetime / self._rate_rps if self._rate_rps else math.inf
        if instances == 0:
            return Predicted(cost_per_request=_known(cost), mean_batch=self._law.mean_size)
        law = self._crowd.expected(instances)
        if law:
            latencies, late = law.quantiles(_QUANTILES), float(law.late([objective_s])[0])
        else:
            latencies = self._law.quantiles(_QUANTILES, self._crowd.delayed(instances))
            late = self._crowd.late(objective_s, instances)
        return Predicted(
            Quantiles(*map(_known, latencies.tolist())),
            _known(cost),
            law.mean_size if law else self._law.mean_size,
            late,
        )


def _size(choice: Choice, model: LatencyModel, percentile: float) -> Size:
    instance_size = choice.instance_size
    exec_s = model.predict(choice.batch_size, instance_size.cpu, instance_size.gpu, percentile)
    assert exec_s is not None  # noqa: S101  the search knows what the model knows
    return Size(
        choice.batch_size,
        instance_size.cpu,
        instance_size.gpu,
        resources=instance_size.resources[choice.batch_size - 1],
        exec_s=exec_s,
        rate_rps=choice.batch_size / exec_s,
    )


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
