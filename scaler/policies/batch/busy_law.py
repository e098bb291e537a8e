"""Latencies of batches that share a number of instances: the law of `batch_law`, and waiting.

The chain of `start_chain` gives the state that a batch finds as the previous one starts. From
there, the requests that wait longer than w are counted by the size of their batch, much as in
`batch_law`. With ``p`` for the phase as a start leaves nothing over and v for the time until an
instance is free, the requests of the next batch that wait longer than w are:

* of batches that leave as if an instance had been free, those of `batch_law`, less
  ``sum_i i p E I_i(min(v, T) - w) P_{B-1-i}(w) D1 1`` that are full too early;
* of those that start full at v ``sum_i min(i, B) p P_i(v - w) P_{>=B-i}(w) 1``;
* of those that start at v with k < B ``sum_i i p (P_i(v - w) - E P_i(T - w)) P_{k-i}(w) 1``.

The same holds for requests that arrive while others are left over. The wait of a left-over request
includes its age: of M that have arrived since the previous start, all are equally likely at any
time since, and for those left over then, the age of the i-th last is approximated by a gamma
distribution with shape i. Execution times are added afterwards, by size, as in `batch_law`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scaler.policies.batch.batch_law import quantiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.arrivals.processes import Times
    from scaler.policies.batch.batch_law import BatchLaw, Service
    from scaler.policies.batch.start_chain import LeftOver, StartChain

__all__ = ["BusyLaw"]

_RARE = 1e-6  # share of starts below which what comes after them is not followed
_FEW = 1e-4  # share of requests below which those left over are not
_AGES = 96  # points of the ages of requests that are left over
_JUMP = 1e-9  # seconds, and part of them, in which a table ends
_LONG_WAITS = 200  # points of the waits of requests that are left over


class BusyLaw:
    """Latencies on a limited number of instances.

    Args:
        law: Law of batches with free instances.
        chain: Chain of their starts, for the same law.
        service: Execution times of batches.
    """

    def __init__(self, law: BatchLaw, chain: StartChain, service: Service) -> None:
        self._law, self._chain = law, chain
        self._seconds, self._weights = service.seconds[: law.size], service.weights
        self._requests = chain.taken * np.arange(1, law.size + 1)
        self._ended = chain.within.sum(axis=-1)[:, : law.size]  # times, levels, phases
        self._ages: dict[int, tuple[Times, Times]] = {}
        steps_s: Times = np.arange(len(chain.within), dtype=np.float64) * chain.step_s
        tables = [
            (law.waits_s, law.waiting(chain.started())),
            (steps_s, self._of_free() + self._of_left()),
            self._of_left_over(),
        ]
        self._waits_s, self._waits = _added(tables)

    @property
    def mean_size(self) -> float:
        """Mean number of requests in a batch."""
        return float(self._requests.sum())

    def late(self, times_s: Sequence[float] | Times) -> Times:
        """Return the share of requests whose latency exceeds each of these times."""
        # Beyond the jump of a table at its end: a wait of just the window is not longer than it.
        exact = 2 * _JUMP * (1 + self._law.window_s)
        left = np.asarray(times_s, dtype=float)[:, None, None] - self._seconds + exact
        late = np.empty(left.shape)
        for number, requests in enumerate(self._requests):
            here = left[:, number]
            waiting = np.interp(here, self._waits_s, self._waits[number])
            late[:, number] = np.where(here < 0, requests, waiting.clip(0.0, requests))
        share: Times = (late @ self._weights).sum(axis=1) / self._requests.sum()
        return share

    def quantiles(self, shares: Sequence[float] | Times) -> Times:
        """Return the latencies in seconds at these shares of requests, shape (shares,)."""
        longest_s = float(self._seconds.max() + self._waits_s[-1])
        return quantiles(self.late, shares, longest_s)

    def _of_free(self) -> Times:
        """Count requests after a start that left none over, beyond those with a free instance."""
        chain, size = self._chain, self._law.size
        steps = np.arange(len(chain.within))
        none = np.einsum("ga,gab->gb", chain.free, chain.none_before)
        early = np.zeros_like(none)
        np.add.at(early, np.minimum(steps, chain.window), none)
        numbers = np.arange(size)[:, None]
        probability = np.zeros((size, len(steps)))
        probability[-1] = self._full(_before(chain.free, chain.within[:, :size]), chain.free)
        ended = chain.within[:, :size] @ chain.d1.sum(axis=1)
        too_early = _before(early, chain.spent[:, :size]) * numbers
        probability[-1] -= (too_early * ended[:, ::-1]).sum(axis=(1, 2))
        late = np.where((steps > chain.window)[:, None], chain.free, 0.0)
        if size > 1 and late.any():
            at_once = _before(late, chain.within[:, :size])
            only = np.zeros_like(none)
            only[chain.window] = np.where((steps > chain.window)[:, None], none, 0.0).sum(axis=0)
            at_once -= _before(only, chain.within[:, :size])
            probability[:-1] += self._partial(at_once)[1:]
        return probability

    def _of_left(self) -> Times:
        """Count requests that join the next batch after a start that left some over."""
        chain, size = self._chain, self._law.size
        probability = np.zeros((size, len(chain.within)))
        after = _behind(chain.busy, chain.within[:, :size])
        self._spent_after = _behind(chain.busy, chain.spent[:, :size])
        for left, share in enumerate(chain.left[: size - 1], start=1):
            if share.sum() < _RARE:
                continue
            rest = size - left
            came = np.einsum("a,jiab->jib", share, after[:, :rest])
            probability[-1] += self._full(came, share * chain.busy[:, None])
            if not chain.waits_on(left):
                probability[left - 1 : -1] += self._partial(came)
                continue
            until = min(chain.departs(left), len(chain.within) - 1)
            only = np.zeros((len(chain.within), len(share)))
            only[until] = share
            probability[left - 1 : -1] += self._partial(_before(only, chain.within[:, :rest]))
            probability[-1] += self._filling(only, share, rest)
        return probability

    def _filling(self, until: Times, share: Times, rest: int) -> Times:
        """Count requests of batches that become full after an instance is free, by the wait."""
        chain = self._chain
        spent = _before(until, chain.spent[:, :rest])
        spent -= np.einsum("a,jiab->jib", share, self._spent_after[:, :rest])
        filled = chain.within[:, :rest] @ chain.d1.sum(axis=1)
        weighed = spent * np.arange(rest)[:, None] * filled[:, ::-1]
        waiting: Times = weighed.sum(axis=(1, 2))
        return waiting

    def _full(self, came: Times, starts: Times) -> Times:
        """Count requests that wait longer in batches that start full, by the wait.

        Args:
            came: Probability of each number of arrivals up to a wait before the start, shape
                (waits, numbers below those that fill the batch, phases).
            starts: Probability of a start after each number of steps, by phase, shape (steps,
                phases).
        """
        rest = came.shape[1]
        beyond = 1.0 - np.cumsum(self._ended[:, :rest], axis=1)  # more arrivals during a wait
        numbers = np.arange(1, rest)[:, None]
        some = (came[:, 1:] * numbers * beyond[:, rest - 2 :: -1][:, : rest - 1]).sum(axis=(1, 2))
        likely = np.cumsum(starts.sum(axis=1)[::-1])[::-1]  # that the start is a wait away or more
        waiting: Times = some + rest * (likely - came.sum(axis=(1, 2)))
        return waiting

    def _partial(self, came: Times) -> Times:
        """Count requests that wait longer in batches that are not full, by arrivals and wait.

        Args:
            came: As for `_full`.
        """
        numbers = came.shape[1]
        weighed = came * np.arange(numbers)[:, None]
        probability = np.zeros((numbers, len(came)))
        for number in range(1, numbers):
            both = weighed[:, : number + 1] * self._ended[:, number::-1]
            probability[number] = both.sum(axis=(1, 2))
        return probability

    def _of_left_over(self) -> tuple[Times, Times]:
        """Return waits in seconds, and the left-over requests exceeding them, by size and wait."""
        chain, size = self._chain, self._law.size
        requests = chain.left.sum(axis=1) * np.minimum(np.arange(1, len(chain.left) + 1), size)
        beyond = np.cumsum(requests[::-1])[::-1] / self._requests.sum()
        followed = np.flatnonzero(beyond >= _FEW)
        if not len(followed):
            return np.zeros(1), np.zeros((size, 1))
        oldest_s = float(chain.left_age_s[followed].max())
        longest_s = max(chain.busy_steps, chain.window) * chain.step_s + 2 * oldest_s
        waits_s = np.linspace(0.0, longest_s, _LONG_WAITS)
        probability = np.zeros((size, _LONG_WAITS))
        for left in (followed + 1).tolist():
            probability += self._left_over(left, waits_s)
        return waits_s, probability

    def _left_over(self, left: int, waits_s: Times) -> Times:
        """Count those of ``left`` left-over requests that wait longer, by batch size and wait."""
        chain, size = self._chain, self._law.size
        probability = np.zeros((size, len(waits_s)))
        share, soon_s = chain.left[left - 1], chain.busy_steps * chain.step_s
        soon = self._older(left, waits_s, soon_s)
        if left >= size:
            probability[-1] = share.sum() * soon
            return probability
        partial, full = chain.waiting_on(left)
        likely, filled = np.einsum("a,kab->k", share, partial), float(share @ full.sum(axis=1))
        until_s = max(soon_s, chain.departs(left) * chain.step_s)
        # Only a request that waits for an instance is as old as a window.
        between, late = (
            np.where(waits_s < self._law.window_s, self._older(left, waits_s, at_s), soon)
            for at_s in ((soon_s + until_s) / 2, until_s)
        )
        probability[-1] = (share.sum() - likely.sum() - filled) * soon + filled * between
        probability[left - 1 : -1] += np.outer(likely, late)
        return probability

    def _older(self, left: int, waits_s: Times, start_s: float) -> Times:
        """Count left-over requests that wait longer if a batch starts ``start_s`` later."""
        if left not in self._ages:
            spread_s = np.linspace(0.0, float(waits_s[-1]), _AGES)
            since = list(self._chain.left_from(left))
            table = np.zeros(_AGES)
            for each in since:
                table += each.share * _older(spread_s, left, self._law.size, each)
            self._ages[left] = spread_s, table / sum(each.share for each in since)
        return np.interp(waits_s - start_s, *self._ages[left])


def _added(tables: Sequence[tuple[Times, Times]]) -> tuple[Times, Times]:
    """Add tables whose rows are over different times, and are 0 beyond them."""
    ends = [times[-1:] * (1 + _JUMP) + _JUMP for times, _ in tables]
    every = np.unique(np.concatenate([*(times for times, _ in tables), *ends]))
    rows = zip(*(table for _, table in tables), strict=True)
    parts = [
        [
            np.interp(every, times[0], row, right=0.0)
            for times, row in zip(tables, each, strict=True)
        ]
        for each in rows
    ]
    return every, np.array(parts).sum(axis=1)


def _before(starts: Times, counted: Times) -> Times:
    """Return the arrivals up to each wait before a start.

    Args:
        starts: Probability of a start after each number of steps, by phase, shape (steps, phases).
        counted: Matrices on the grid, shape (steps, levels, phases, phases).

    Returns:
        Shape (waits, levels, phases).
    """
    steps, levels, phases, _ = counted.shape
    padded = np.concatenate([starts, np.zeros_like(starts)])
    ahead = np.arange(steps)[:, None] + np.arange(steps)
    rows = padded[ahead].reshape(steps, steps * phases)
    columns = counted.transpose(0, 2, 1, 3).reshape(steps * phases, levels * phases)
    product: Times = (rows @ columns).reshape(steps, levels, phases)
    return product


def _behind(starts: Times, counted: Times) -> Times:
    """Return `_before` by phase at the previous start, shape (waits, levels, phases, phases)."""
    steps = len(counted)
    padded = np.concatenate([starts, np.zeros_like(starts)])
    rows = padded[np.arange(steps)[:, None] + np.arange(steps)]
    product: Times = np.tensordot(rows, counted, 1)
    return product


def _older(ages_s: Times, left: int, size: int, since: LeftOver) -> Times:
    """Count those of the oldest ``size`` left-over requests that exceed each age."""
    first = max(left - size, 0)  # the last of them that is not taken
    new = min(since.came, left)
    part = (ages_s / since.since_s).clip(0.0, 1.0)
    counts = _fewer(_binomial(since.came, part), first, new)
    if left > since.came:
        gaps = (ages_s - since.since_s) / max(since.apart_s, 1e-12)
        counts += _fewer(_poisson(left - new, gaps), max(first - new, 0), left - new)
    return counts


def _fewer(numbers: Times, first: int, last: int) -> Times:
    """Return how many numbers from ``first`` + 1 to ``last`` exceed a random one, on average.

    Args:
        numbers: Probabilities of 0, 1 and so on, shape (cases, numbers).
        first: The largest number that does not count.
        last: The last number that counts.
    """
    each = np.arange(numbers.shape[1])
    counted: Times = numbers @ (last - np.maximum(each, first)).clip(0)
    return counted


def _binomial(count: int, part: Times) -> Times:
    """Return the binomial probabilities of 0 to ``count``, for each success probability."""
    numbers = np.arange(count + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(numbers[1:]))])
    ways = logs[-1] - logs - logs[::-1]
    into = np.log(part.clip(1e-300))[:, None] * numbers
    out_of = np.log((1.0 - part).clip(1e-300))[:, None] * numbers[::-1]
    likely: Times = np.exp(ways + into + out_of)
    return likely


def _poisson(count: int, mean: Times) -> Times:
    """Return the Poisson probabilities of the numbers below ``count``, for each mean."""
    numbers = np.arange(count)
    logs = np.concatenate([[0.0], np.cumsum(np.log(numbers[1:]))])
    powers = np.log(mean.clip(1e-300))[:, None] * numbers
    likely: Times = np.exp(powers - mean.clip(0.0)[:, None] - logs)
    return likely
