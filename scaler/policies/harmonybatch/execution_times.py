"""Execution times of batches of every size on one instance size, and what executing them costs.

A latency model answers for one batch size and one quantile at a time; the law of batches needs
tails of all sizes at many times. So each size's distribution is cut into slices of equal times,
thin ones where lateness is decided. A size that the model does not know is padded to the next
larger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from carpool.latency.arrays import Occupied, Sizes, predicted

if TYPE_CHECKING:
    from carpool.arrivals.processes import Times
    from carpool.scaling import Billing, Configuration, LatencyModel

__all__ = ["SlicedTimes"]

# Edges of the slices: three up to the median, then thinner and thinner ones.
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
_ASKED: Times = np.append(0.5, (_EDGES[1:] + _EDGES[:-1]) / 2)  # the median, and each slice's


class SlicedTimes:
    """Execution times on one configuration, for `merged_windows.ExecutionTimes`.

    Args:
        model: Latency model; it must know the configuration.
        configuration: The instance, and its largest batch.
        billing: What executions cost.

    Attributes:
        mean_s: Mean execution time by batch size, from 1 on; shape ``(batch,)``.
        costs: Mean cost by batch size; shape ``(batch,)``.
    """

    def __init__(self, model: LatencyModel, configuration: Configuration, billing: Billing) -> None:
        batch, cpu, gpu = configuration
        alone = Sizes(np.arange(1.0, batch + 1)[:, None], np.full(1, cpu), np.full(1, gpu))
        predictions = predicted(model, alone, _ASKED)
        median, seconds = predictions[:, :1], predictions[:, 1:]
        # A size that is not known is padded to the next larger.
        places = np.where(median[:, 0] > 0, np.arange(batch), batch - 1)
        places = np.minimum.accumulate(places[::-1])[::-1]
        self._seconds: Times = np.where(seconds > 0, seconds, median)[places]
        self.mean_s: Times = self._seconds @ _SHARES
        instance = Occupied(*(np.full(1, value) for value in model.resources(*configuration)))
        self.costs: Times = billing.executions(instance, self._seconds) @ _SHARES
        # Sums over each size's slices from one to the last: of shares, and of shares times seconds.
        ones = np.ones_like(self._seconds)
        self._left = [_sums_from(each * _SHARES) for each in (ones, self._seconds)]
        self._apart = 4.0 * float(self._seconds.max())
        offsets = self._apart * np.arange(batch)[:, None]
        self._in_line = (self._seconds + offsets).ravel()

    def tails(self, at_s: Times) -> tuple[Times, Times]:
        """See `merged_windows.ExecutionTimes.tails`."""
        rows = np.arange(len(self._seconds)).reshape(-1, *([1] * np.ndim(at_s)))
        # One search serves all sizes, whose times follow each other in one ascending array.
        near = np.minimum(np.maximum(at_s, -self._apart / 4), self._apart / 2)
        # The sums have one more entry per size than the array, after its last slice.
        places = self._in_line.searchsorted(near + self._apart * rows, side="right") + rows
        shares, seconds = (left.take(places) for left in self._left)
        return shares, np.maximum(seconds - at_s * shares, 0.0)


def _sums_from(values: Times) -> Times:
    """Return the sums over the last axis from each entry on, with a final 0, flattened."""
    sums = np.zeros((len(values), values.shape[1] + 1))
    sums[:, :-1] = values[:, ::-1].cumsum(axis=1)[:, ::-1]
    return sums.ravel()
