"""Distribution of the number of requests, and of the phase, of a Markovian process over a time.

Theory of operation
-------------------
``within[n][i][j]`` is the probability that ``n`` requests arrive in ``t`` seconds and the phase
changes from ``i`` to ``j``: the blocks of the matrix exponential of BATCH's Q (SC'20, Eq. 4-6 and
11-12), which do not depend on the batch size while the batch is not full. ``spent`` is their
integral from 0 to ``t``: the time during which a buffer holds ``n`` requests more than at first.

Both are computed by uniformisation, as sums of products of non-negative numbers, so no digits are
lost however small the results are. A long time is halved until it covers few steps of the
uniformised chain, and doubled back with ``within(2t) = within(t) * within(t)``, where ``*`` is the
convolution over ``n``. Poisson arrivals are a process with one phase. Nothing here depends on
batches.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from carpool.arrivals.processes import Poisson, Times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.arrivals.markov import MarkovArrivals

__all__ = ["Counted", "Counting", "Markovian", "matrices"]

Markovian: TypeAlias = "Poisson | MarkovArrivals"

_STEPS = 256.0  # most steps of the uniformised chain; longer times are halved
_TERMS = 420  # Poisson with mean 256 is beyond it with probability 1e-20
_CHAINS = 64  # number of chains of a phase that are kept, by levels
_AT_ONCE = 1 << 22  # numbers in the largest array


class Counted(NamedTuple):
    """Matrices of a process at several times.

    Attributes:
        within: Probabilities, shape (times, levels, phases, phases).
        spent: Their integrals in seconds, of the same shape.
    """

    within: Times
    spent: Times


def matrices(process: Markovian) -> tuple[Times, Times]:
    """Return D0 and D1 of a process in 1/s, each of shape (phases, phases)."""
    if isinstance(process, Poisson):
        return np.array([[-process.rate_rps]]), np.array([[process.rate_rps]])
    return np.array(process.silent, dtype=float), np.array(process.arriving, dtype=float)


class Counting:
    """Distribution of the number of requests of a process, for numbers below ``levels``.

    Args:
        d0, d1: The process's matrices in 1/s, each of shape (phases, phases).
        levels: How many numbers to cover, at least 1.

    Attributes:
        d0, d1, levels: As given.
    """

    def __init__(self, d0: Times, d1: Times, levels: int) -> None:
        self.d0, self.d1, self.levels = d0, d1, levels
        self._fastest = float(np.max(-np.diag(self.d0)))
        self._chain = self._uniformised()

    def at(self, times_s: Sequence[float] | Times) -> Counted:
        """Return the matrices at these times, each at least 0."""
        times = np.asarray(times_s, dtype=float)
        parts = math.ceil(len(times) * (self.levels * len(self.d0)) ** 2 / _AT_ONCE)
        counts = [self._some(part) for part in np.array_split(times, max(parts, 1))]
        if len(counts) == 1:
            return counts[0]
        within, spent = (np.concatenate(each) for each in zip(*counts, strict=True))
        return Counted(within, spent)

    def on_grid(self, step_s: float, count: int) -> Counted:
        """Return the matrices at all multiples of ``step_s`` from 0 to ``count`` steps."""
        first = self.at([0.0, step_s])
        within, spent = first
        while len(within) <= count:  # extend the known times by the longest of them
            last = _toeplitz(within[-1:])
            later = _product(within[1:], last)
            more = spent[-1:] + _product(spent[1:], last)
            within, spent = np.concatenate([within, later]), np.concatenate([spent, more])
        return Counted(within[: count + 1], spent[: count + 1])

    def _some(self, times: Times) -> Counted:
        longest = self._fastest * float(times.max(initial=0.0))
        halvings = max(0, math.ceil(math.log2(longest / _STEPS))) if longest > _STEPS else 0
        within, spent = self._short(times / 2.0**halvings)
        for _ in range(halvings):
            step = _toeplitz(within)
            spent = spent + _product(spent, step)
            within = _product(within, step)
        return Counted(within, spent)

    def _uniformised(self) -> Times:
        rate = self._fastest or 1.0
        silent, arriving = np.eye(len(self.d0)) + self.d0 / rate, self.d1 / rate
        made = _small_chain if len(self.d0) == 1 else _chain
        return made(silent.tobytes(), arriving.tobytes(), self.levels)

    def _short(self, times: Times) -> Counted:
        longest = self._fastest * float(times.max(initial=0.0))
        # A Poisson number exceeds its mean by 12 deviations and 30 with probability below 1e-20;
        # `levels` more terms make the rest as small relative to the probability of `levels`.
        terms = min(_TERMS, math.ceil(longest + 12 * math.sqrt(longest)) + 30 + self.levels)
        chain, steps = self._chain[:terms], np.arange(terms)
        mean = (self._fastest * times)[:, None]
        factorials = np.concatenate([[0.0], np.cumsum(np.log(steps[1:]))])
        powers = np.where(steps == 0, 0.0, steps * np.log(np.maximum(mean, 1e-300)))
        weights = np.exp(powers - mean - factorials)
        if not self._fastest:  # no request ever arrives
            spent = np.zeros((len(times), *chain.shape[1:]))
            spent[:, 0] = times[:, None, None]
            return Counted(np.tensordot(weights, chain, 1), spent)
        beyond = np.cumsum(weights[:, ::-1], axis=1)[:, ::-1] - weights
        within = np.tensordot(weights, chain, 1)
        return Counted(within, np.tensordot(beyond / self._fastest, chain, 1))


def _chain(silent: bytes, arriving: bytes, levels: int) -> Times:
    """Return requests and phase after each step, shape (steps, levels, phases, phases).

    Args:
        silent: Probabilities of a step without a request, by phase before and after.
        arriving: Probabilities of a step with a request.
        levels: How many numbers of requests to cover.
    """
    without, with_one = (np.frombuffer(each) for each in (silent, arriving))
    phases = math.isqrt(len(without))
    without, with_one = without.reshape(phases, phases), with_one.reshape(phases, phases)
    chain = np.zeros((_TERMS, levels, phases, phases))
    chain[0, 0] = np.eye(phases)
    for step in range(1, _TERMS):
        chain[step] = chain[step - 1] @ without
        chain[step, 1:] += chain[step - 1, :-1] @ with_one
    chain.flags.writeable = False
    return chain


_small_chain = lru_cache(maxsize=_CHAINS)(_chain)  # all Poisson processes have the same


def _toeplitz(blocks: Times) -> Times:
    """Return the matrix that convolves a row of blocks with ``blocks`` when multiplied by it."""
    times, levels, phases, _ = blocks.shape
    lag = np.arange(levels)[None, :] - np.arange(levels)[:, None]
    spread = np.where((lag >= 0)[None, :, :, None, None], blocks[:, np.maximum(lag, 0)], 0.0)
    square: Times = spread.transpose(0, 1, 3, 2, 4).reshape(times, levels * phases, -1)
    return square


def _product(blocks: Times, toeplitz: Times) -> Times:
    times, levels, phases, _ = blocks.shape
    rows = blocks.transpose(0, 2, 1, 3).reshape(times, phases, levels * phases)
    product: Times = (rows @ toeplitz).reshape(times, phases, levels, phases)
    return product.transpose(0, 2, 1, 3)
