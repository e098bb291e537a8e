"""How long batches of every size take on one size of instance, and what executing them costs.

A latency model answers one batch size and one quantile at a time; the law of batches wants tails of
all sizes at many times. So each size's distribution is cut into slices of equal times, thin ones
where it is about being late. A size that the model does not know runs as the next larger, padded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from carpool.latency import Configuration, LatencyModel
    from scaler.core.arrivals.processes import Times
    from scaler.core.cost import Billing

__all__ = ["SlicedTimes"]

# Edges of the slices: three to the median, then ever thinner.
_EDGES = np.concatenate(
    [
        np.linspace(0.0, 0.5, 3, endpoint=False),
        np.linspace(0.5, 0.9, 16, endpoint=False),
        np.linspace(0.9, 0.96, 12, endpoint=False),
        np.linspace(0.96, 0.98, 8, endpoint=False),
        np.linspace(0.98, 0.999, 19, endpoint=False),
        np.array([0.999, 0.9995, 0.9999, 0.99999, 1.0]),
    ]
)
_SHARES: Times = np.diff(_EDGES)
_QUANTILES: list[float] = ((_EDGES[1:] + _EDGES[:-1]) / 2).tolist()


class SlicedTimes:
    """Execution times on one configuration, as `merged_windows.ExecutionTimes` has them.

    Args:
        model: How long batches take; it knows the configuration.
        configuration: The instance, and its largest batch.
        billing: What that costs.

    Attributes:
        mean_s: Mean seconds of a batch by its size, from 1 on; shape ``(batch,)``.
        costs: Money by its size; shape ``(batch,)``.
    """

    def __init__(self, model: LatencyModel, configuration: Configuration, billing: Billing) -> None:
        batch, cpu, gpu = configuration
        resources = model.resources(*configuration)
        seconds: list[list[float]] = []
        costs: list[float] = []
        for size in range(batch, 0, -1):
            median = model.predict(size, cpu, gpu)
            if median is None:  # padded to the next larger
                seconds.append(seconds[-1])
                costs.append(costs[-1])
                continue
            times = [model.predict(size, cpu, gpu, at) or median for at in _QUANTILES]
            if times[0] == times[-1]:
                costs.append(billing.execution(resources, median))
            else:
                costs.append(float(_SHARES @ [billing.execution(resources, t) for t in times]))
            seconds.append(times)
        self._seconds: Times = np.array(seconds[::-1])
        self.costs: Times = np.array(costs[::-1])
        self.mean_s: Times = self._seconds @ _SHARES
        # What is left of each size's distribution from a slice on: shares, and share-seconds.
        ones = np.broadcast_to(_SHARES, self._seconds.shape)
        self._left = [_sums_from(ones), _sums_from(self._seconds * _SHARES)]
        self._apart = 4.0 * float(self._seconds.max())
        offsets = self._apart * np.arange(batch)[:, None]
        self._in_line = (self._seconds + offsets).ravel()

    def tails(self, at_s: Times) -> tuple[Times, Times]:
        """As `merged_windows.ExecutionTimes.tails`."""
        sizes, slices = self._seconds.shape
        rows = np.arange(sizes).reshape(-1, *([1] * np.ndim(at_s)))
        # All sizes are searched at once, one behind the other in one ascending line.
        near = np.clip(at_s, -self._apart / 4, 2 * self._apart / 4)
        places = np.searchsorted(self._in_line, near + self._apart * rows, side="right")
        places = places - slices * rows
        shares = self._left[0][rows, places]
        return shares, np.maximum(self._left[1][rows, places] - at_s * shares, 0.0)


def _sums_from(values: Times) -> Times:
    """Sums over the last axis from each place on, and 0 at its end."""
    sums = values[:, ::-1].cumsum(axis=1)[:, ::-1]
    return np.hstack([sums, np.zeros((len(sums), 1))])
