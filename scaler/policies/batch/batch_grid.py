"""The exact law of batches for all sizes and windows at once, on a grid of times.

A search needs what `batch_law` computes for thousands of batch sizes and windows, with the
execution times of every instance size. All of them share the matrices of `map_counts`. So times are
rounded to a grid, always to the side on which more requests are late, and the law's terms are
tabulated: ``[k, T, w]`` holds the mean number of requests in batches of k that wait longer than w,
for each phase in which the batch began. An instance size then costs one table lookup for each batch
size, window and execution time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from carpool.arrivals.map_counts import Counting, matrices
from scaler.policies.batch.batch_law import first_phases

if TYPE_CHECKING:
    from carpool.arrivals.map_counts import Markovian
    from carpool.arrivals.processes import Times
    from scaler.policies.batch.batch_law import Service

__all__ = ["BatchGrid"]

_SHORT = 1e-9  # part of a step; times that differ by less are the same


class BatchGrid:
    """Law of batches of sizes 1 to ``largest``, with windows of 0 to ``steps`` steps.

    Args:
        process: Arrival process of requests.
        largest: The largest batch.
        longest_s: The longest window, above 0.
        steps: Number of steps of the longest window.

    Attributes:
        windows_s: The windows, shape (windows,).
        mean_size: Mean requests per batch, shape (sizes, windows).
    """

    def __init__(self, process: Markovian, largest: int, longest_s: float, steps: int) -> None:
        self._step_s = longest_s / steps
        self._counting = Counting(*matrices(process), largest)
        within, spent = self._counting.on_grid(self._step_s, steps)
        self.windows_s: Times = np.arange(steps + 1, dtype=np.float64) * self._step_s
        first = first_phases(self._counting, within[:, : largest - 1], spent[:, : largest - 1])
        self._first = np.swapaxes(first, 0, 1)  # sizes, windows, phases
        self._partial = np.swapaxes(within.sum(axis=-1), 0, 1)  # of k - 1 more, from a phase
        fewer = np.cumsum(self._partial, axis=0)
        more = np.concatenate([np.ones_like(fewer[:1]), 1.0 - fewer[:-1]]).clip(0.0)
        self._more = more  # of k - 1 or more after the first
        self.mean_size: Times = self._started(np.cumsum(more, axis=0))
        self._waiting = self._waiting_partial(within), self._waiting_full(within, spent)

    def per_batch(self, values: Times) -> Times:
        """Return the mean over batches of a value that depends on their size.

        Args:
            values: Values for batches of 1, 2 and so on, shape (sizes,); all sizes, or the smaller
                ones.

        Returns:
            Shape (sizes, windows).
        """
        amounts, sizes = values[:, None, None], len(values)
        partial = amounts * self._partial[:sizes]
        both = np.cumsum(partial, axis=0) - partial + amounts * self._more[:sizes]
        return self._started(both)

    def late(self, objective_s: float, service: Service) -> Times:
        """Return the share of requests whose latency exceeds ``objective_s``, rounded up.

        Args:
            objective_s: Seconds.
            service: Execution times of batches, for all sizes or the smaller ones.

        Returns:
            Shape (sizes, windows).
        """
        left = (objective_s - service.seconds) / self._step_s
        steps = np.floor(left.clip(-1.0, len(self.windows_s)) + _SHORT).astype(int)
        partial, full = (self._looked_up(table, steps, service) for table in self._waiting)
        both = np.cumsum(partial, axis=0) - partial + full
        return (self._started(both) / self.mean_size[: len(steps)]).clip(0.0, 1.0)

    def _looked_up(self, table: Times, steps: Times, service: Service) -> Times:
        """Return the mean of table entries over execution times, shape (sizes, windows, phases)."""
        numbers = np.arange(len(steps))
        interpolated: Times = np.zeros((len(steps), *table.shape[2:]))
        for point, weight in enumerate(service.weights):
            interpolated += weight * table[numbers, steps[:, point] + 1]
        return interpolated

    def _started(self, by_phase: Times) -> Times:
        """Return the mean over the phases in which batches begin, shape (sizes, windows)."""
        mean: Times = (self._first[: len(by_phase)] * by_phase).sum(axis=-1)
        return mean

    def _waiting_partial(self, within: Times) -> Times:
        ended = within.sum(axis=-1)
        number = np.arange(1, within.shape[1] + 1)
        return self._table(within, ended, 0, number[:, None, None] * self._partial)

    def _waiting_full(self, within: Times, spent: Times) -> Times:
        ended = within @ self._counting.d1.sum(axis=1)
        number = np.arange(1, within.shape[1] + 1)
        return self._table(spent, ended, 1, number[:, None, None] * self._more)

    def _table(self, begun: Times, ended: Times, short: int, total: Times) -> Times:
        """Return the requests that wait longer, by batch size, wait, window and first phase.

        Args:
            begun: Arrivals up to the wait before the window ends, shape (times, levels, phases,
                phases).
            ended: Arrivals during the wait, shape (times, levels, phases).
            short: How many fewer than k - 1 requests there are in both.
            total: All requests, shape (levels, times, phases).

        Returns:
            Shape (levels, waits, windows, phases); the waits begin with one below 0, and end with
            one that is longer than the longest window.
        """
        times, levels, phases, _ = begun.shape
        weighed = begun * np.arange(1, levels + 1)[:, None, None]
        rows = weighed.transpose(0, 2, 1, 3).reshape(times * phases, levels * phases)
        columns = ended.transpose(1, 2, 0)  # levels, phases, waits
        before = np.arange(times)
        within = (before > 0) & (before[:, None] + before < times)  # the longest window
        table = np.zeros((levels, (times + 2) * times, phases))
        table[:, :times] = total
        # Each wait's row is longer by one than a row of windows. Read as rows of windows, it is
        # shifted by the wait: the entry for a time before the wait is at the window of both.
        both = table[:, times:].reshape(levels, times, times + 1, phases)
        for level in range(levels - short):
            used = (level + 1) * phases
            turned = columns[level::-1].reshape(used, times)
            product = (turned.T @ rows[:, :used].T).reshape(times, times, phases)
            np.multiply(product, within[..., None], out=both[level + short, :, :times])
        return table.reshape(levels, times + 2, times, phases)
