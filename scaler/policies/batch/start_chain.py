"""The state that batches find when they start on a limited number of instances: a Markov chain.

Theory of operation
-------------------
A batch leaves when it is full or its window is over *and* an instance is free; meanwhile it grows
(`sidecar.core.batcher`). What one start leaves behind determines the next: the time until an
instance is free, ``v``, the number of requests left over because the batch was full, ``r``, and the
phase of the arrivals. With ``P_n(t)`` and ``I_n(t)`` as in `map_counts`, B, T for size and window,
``E`` for ``P_0((v - T)+)``, ``F = (-D0)^-1 D1``, and nothing left over:

* B requests or more arrive within v: the batch starts at v, full, and leaves over those beyond B:
  ``P_k(v)``.
* Fewer arrive, the first of them before v - T: it starts at v with them: ``P_k(v) - E P_k(T)``.
* Otherwise the first arrives after (v - T)+, and the batch leaves as if an instance had always been
  free, ``E F P_{k-1}(T)`` with k < B and ``E F I_{B-2}(T) D1`` full, less those that would have
  been full before v, ``E I_{B-1}(min(v, T)) D1``, which belong to the first case.

With r left over, j more arrive: ``P_j(v)`` if they fill the batch; otherwise it continues to wait
until the window of its oldest request is over, whose mean age is known.

With one instance, v is the execution that has just begun, and the chain is exact except for these
ages. With n instances, v is what remains of the execution that began n - 1 starts before: the gaps
between those starts are assumed to be independent, and while requests are left over, instances
become free one after the other, every n-th part of an execution.

Times are multiples of a step, a ninety-sixth of the longest; the weight of a time between two
multiples is divided between them, so that means are preserved.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from carpool.arrivals.map_counts import Counting, matrices

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from carpool.arrivals.map_counts import Markovian
    from carpool.arrivals.processes import Times
    from scaler.policies.batch.batch_law import BatchLaw, Service

    Places: TypeAlias = npt.NDArray[np.intp]

__all__ = ["LeftOver", "StartChain"]

_STEPS = 96
_ROUNDS = 3  # in which gaps between starts settle, where there are several instances
_LEAST_LEFT, _MOST_LEFT = 8, 256
_OFTEN = 3e-3  # share of all starts that leave some over
_TAIL = 4.5  # tails below exp(-2 * this) are neglected


class LeftOver(NamedTuple):
    """One origin of the requests that a start leaves over.

    Attributes:
        share: Probability, as a share of all starts.
        came: Requests since the previous start; those left over are the last of them.
        since_s: Seconds since that start.
        apart_s: Mean gap between those that had been left over by that start, too.
    """

    share: float
    came: int
    since_s: float
    apart_s: float


class StartChain:
    """Markov chain over the starts of batches on a given number of instances.

    Args:
        process: The arrival process.
        law: How requests are batched.
        service: Execution times of all batch sizes, finite.
        instances: Number of instances, at least one.
        load: Utilization of the instances in the busiest phase if all batches are full, below 1.

    Attributes:
        size, window, step_s: The law's size, its window in steps, and the step.
        within, spent: As in `Counted` on the grid of times.
        d1: The matrix ``D1`` of the process.
        free: Probability that the next free instance is 0, 1 and so on steps away after a start
            that leaves nothing over, by phase, shape (steps, phases).
        left: Probability that a start leaves over 1, 2 and so on, shape (most, phases).
        left_age_s: Mean age of the oldest of those when they are left over, shape (most,).
        busy: Distribution of the steps until an instance is free if some are left over, shape
            (steps,).
        taken: Probability that a start has 1, 2 and so on requests, shape (size,).
    """

    def __init__(
        self, process: Markovian, law: BatchLaw, service: Service, instances: int, load: float
    ) -> None:
        self.size = law.size
        self._seconds = service.seconds[: law.size]
        self._weights = service.weights
        self._instances = instances
        window_s = law.window_s if law.size > 1 else 0.0
        longest_s = float(self._seconds.max())
        self.step_s, self.window = _grid(window_s, longest_s)
        self._steps = max(self.window, math.ceil(longest_s / self.step_s)) + 1
        d0, self.d1 = matrices(process)
        self._next = np.linalg.solve(-d0, self.d1)  # the phase as the next request comes
        spread = math.sqrt(load * law.size)
        most = math.ceil(_TAIL / (1 - load) + 4 * spread)
        self._most = min(max(most, _LEAST_LEFT), _MOST_LEFT)
        counting = Counting(d0, self.d1, law.size + self._most + 1)
        self.within, self.spent = counting.on_grid(self.step_s, self._steps)
        self.busy = self._shared(self._seconds[-1] / instances, self._weights)
        self._within_busy, self._spent_busy = (
            np.tensordot(self.busy, each, 1) for each in (self.within, self.spent)
        )
        self._solve()

    def departs(self, left: int) -> int:
        """Return the steps from a start until the window of the oldest left-over request closes."""
        window_s = self.window * self.step_s
        return round((window_s - float(self.left_age_s[left - 1])) / self.step_s)

    def waits_on(self, left: int) -> bool:
        """Return whether ``left`` requests may continue to wait while an instance is free."""
        return left < self.size and self.departs(left) > self.busy_steps

    @cached_property
    def busy_steps(self) -> float:
        """Mean of `busy`."""
        return float(self.busy @ np.arange(self._steps + 1))

    @cached_property
    def none_before(self) -> Times:
        """``P_0`` up to one window before each time, shape (steps, phases, phases)."""
        before = np.maximum(np.arange(self._steps + 1) - self.window, 0)
        none: Times = self.within[before, 0]
        return none

    def started(self) -> Times:
        """Return the phase as batches open that leave as if an instance were always free."""
        first: Times = np.einsum("ga,gab,bc->c", self.free, self.none_before, self._next)
        return first

    def waiting_on(self, left: int) -> tuple[Times, Times]:
        """Return how likely ``left`` requests become 1, 2 and so on, and full, by the end.

        The end is when the window of the oldest closes.

        Returns:
            Shapes (size - left, phases, phases) for batches that are not full, and (phases,
                phases).
        """
        rest = self.size - left
        if not self.waits_on(left):
            return self._within_busy[:rest], np.zeros_like(self.d1)
        until = min(self.departs(left), self._steps)
        filled = (self.spent[until, rest - 1] - self._spent_busy[rest - 1]) @ self.d1
        return self.within[until, :rest], filled

    def _solve(self) -> None:
        sizes, steps = self.size, self._steps + 1
        ages = np.arange(1, self._most + 1)
        self.left_age_s = self.busy_steps * self.step_s * ages / (sizes + ages + 1)
        landing = np.zeros((sizes, steps))
        for number, seconds in enumerate(self._seconds):
            landing[number] = self._shared(seconds, self._weights)
        executions = landing
        if self._instances > 1:
            landing = np.zeros((sizes, steps))
            landing[:, 0] = 1.0
        for _ in range(_ROUNDS if self._instances > 1 else 1):
            self._settle(landing)
            if self._instances > 1:
                landing = np.tile(self._remaining(self.taken @ executions), (sizes, 1))
        if any(self.waits_on(left) for left in range(1, min(sizes, self._most + 1))):
            self._settle(landing)  # with the ages that are known by now

    def _settle(self, landing: Times) -> None:
        """Solve the stationary chain: set `free`, `left`, `taken` and `left_age_s`."""
        used = np.flatnonzero(landing.any(axis=0))
        taken, left = self._from_free(used)
        taken_left, left_left = self._from_left()
        landing = landing[:, used]
        to_free = np.einsum("skab,kg->sagb", np.concatenate([taken, taken_left]), landing)
        to_left = np.concatenate([left, left_left]).transpose(0, 2, 1, 3)
        phases, states = len(self.d1), len(used) + self._most
        step = np.concatenate([to_free, to_left], axis=2).reshape(states * phases, -1)
        share = _stationary(step).reshape(states, phases)
        self.free = np.zeros((self._steps + 1, phases))
        self.free[used], self.left = share[: len(used)], share[len(used) :]
        both = np.einsum("sa,skab->k", share, np.concatenate([taken, taken_left]))
        both[-1] += max(1.0 - both.sum(), 0.0)  # what leaves some over is full
        self.taken = both / both.sum()
        self._learn_ages(used, share[: len(used)], left, left_left)

    def _from_free(self, at: Places) -> tuple[Times, Times]:
        """Return what is taken and what is left over, by the steps until an instance is free."""
        size, window = self.size, self.window
        none = self.none_before[at]
        first = none @ self._next
        taken = np.zeros((len(at), size, *self.d1.shape))
        taken[:, :-1] = first[:, None] @ self.within[window, : size - 1]
        late = at > window
        at_once = self.within[at[late], 1:size] - none[late][:, None] @ self.within[window, 1:size]
        taken[late, :-1] += at_once
        full = self.spent[window, size - 2] @ self.d1 if size > 1 else np.eye(len(self.d1))
        early = self.spent[np.minimum(at, window), size - 1] @ self.d1
        taken[:, -1] = first @ full - none @ early + self.within[at, size]
        return taken, self.within[at, size + 1 :]

    def _from_left(self) -> tuple[Times, Times]:
        """Return what is taken and what is left over after 1, 2 and so on were left over."""
        size, most, phases = self.size, self._most, len(self.d1)
        left = np.arange(1, most + 1)
        more = size - left[:, None] + left[None, :]  # arrivals that lead to as many left over
        again = np.where(
            (more >= 0)[..., None, None], self._within_busy[more.clip(0, size + most)], 0.0
        )
        taken = np.zeros((most, size, phases, phases))
        for number in range(1, min(size, most) + 1):
            taken[number - 1, -1] = self._within_busy[size - number]
            if number < size:
                partial, full = self.waiting_on(number)
                taken[number - 1, number - 1 : size - 1] = partial
                taken[number - 1, -1] += full
        return taken, again

    def _learn_ages(self, at: Places, free: Times, left: Times, left_left: Times) -> None:
        """Compute the mean age of the oldest left-over request.

        Arrivals since the previous start are assumed to be evenly spread over that time; earlier
        requests are older by all of it.
        """
        numbers, size, busy_s = (
            np.arange(1, self._most + 1),
            self.size,
            self.busy_steps * self.step_s,
        )
        flow = np.einsum("ga,grab->gr", free, left)
        flow_left = np.einsum("qa,qrab->qr", self.left, left_left)
        came = size - numbers[:, None] + numbers[None, :]  # from q left over to r
        since = came >= numbers
        ages = (flow * at[:, None] * self.step_s * numbers / (size + numbers + 1)).sum(axis=0)
        inside = busy_s * numbers / (came + 1).clip(1)
        ages += (flow_left * np.where(since, inside, busy_s)).sum(axis=0)
        older = np.where(since, 0.0, flow_left * (numbers - came) / numbers[:, None])
        total = flow.sum(axis=0) + flow_left.sum(axis=0)
        total[total <= 0] = 1.0
        self.left_age_s = np.linalg.solve(np.diag(total) - older.T, ages)
        self._fresh = flow.sum(axis=0), (at * self.step_s) @ flow
        self._flow_left = flow_left

    def left_from(self, left: int) -> Iterator[LeftOver]:
        """Yield the origins of ``left`` left-over requests, merging those that are rare."""
        share, since_s = (float(each[left - 1]) for each in self._fresh)
        if share > 0:
            yield LeftOver(share, self.size + left, since_s / share, 0.0)
        shares, since_s = self._flow_left[:, left - 1], self.busy_steps * self.step_s
        numbers = np.arange(1, self._most + 1)
        came = self.size - numbers + left
        apart_s = self.left_age_s / numbers
        often = shares > _OFTEN * self.left.sum()
        rare = (came >= 0) & ~often
        alone = [numbers == number for number in numbers[often & (came >= 0)]]
        for part in (*alone, rare & (came >= left), rare & (came < left)):
            share = float(shares[part].sum())
            if share > 0:
                weights = shares[part] / share
                yield LeftOver(
                    share, round(came[part] @ weights), since_s, float(apart_s[part] @ weights)
                )

    def _remaining(self, executions: Times) -> Times:
        """Return the steps until the oldest execution ends, after a gap per other instance."""
        gaps = _sum_of(self._gaps(), self._instances - 1)
        left: Times = np.correlate(executions, gaps, "full")[len(gaps) - 1 :]
        left[0] += max(1.0 - left.sum(), 0.0)
        return left

    def _gaps(self) -> Times:
        """Return the distribution of the steps between two starts, without the longest gaps."""
        steps = np.arange(self._steps + 1)
        within = self.within[np.minimum(steps, self.window), : self.size].sum(axis=(1, 3))
        natural = np.einsum("gab,gb->ga", self.none_before, within)
        free = np.cumsum(self.free, axis=0)
        after = (free * natural).sum(axis=1) + free[-1].sum() - free.sum(axis=1)
        after += self.left.sum() * (1.0 - np.cumsum(self.busy))
        gaps: Times = -np.diff(after, prepend=1.0)
        return gaps

    def _shared(self, seconds: Times, weights: Times) -> Times:
        """Distribute the weights over the grid of times, shape (steps,)."""
        places = seconds / self.step_s
        low = np.floor(places).astype(int).clip(0, self._steps - 1)
        part = (places - low).clip(0.0, 1.0)
        distribution = np.zeros(self._steps + 1)
        np.add.at(distribution, low, weights * (1 - part))
        np.add.at(distribution, low + 1, weights * part)
        return distribution


def _grid(window_s: float, longest_s: float) -> tuple[float, int]:
    """Return the step in seconds, and the steps per window; 0 if the window is much shorter."""
    step_s = max(window_s, longest_s) / _STEPS
    if window_s < step_s / 4:
        return step_s, 0
    window = max(1, round(window_s / step_s))
    return window_s / window, window


def _stationary(step: Times) -> Times:
    """Return the stationary distribution of a transition matrix."""
    step = step / step.sum(axis=1, keepdims=True)
    equations = step.T - np.eye(len(step))
    equations[-1] = 1.0
    sums = np.zeros(len(step))
    sums[-1] = 1.0
    weights = np.linalg.solve(equations, sums).clip(0.0)
    share: Times = weights / weights.sum()
    return share


def _sum_of(gaps: Times, count: int) -> Times:
    """Return the distribution of the sum of ``count`` independent gaps, in steps."""
    total = np.zeros_like(gaps)
    total[0] = 1.0
    power = gaps
    while count:
        if count & 1:
            total = np.convolve(total, power)[: len(gaps)]
        power = np.convolve(power, power)[: len(gaps)]
        count >>= 1
    return total
