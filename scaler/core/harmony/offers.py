"""What a request costs on every configuration, for many loads at once: the price list of groups.

A group of applications with the total rate ``R`` that shares an instance leaves its requests a
window each, their objective less the same allowance ``x`` for the execution. Its batches stay open
for ``V - x`` in the mean (`pooling`), whatever the configuration. Batches that stay open for ``w``
have a mean size of

    1 + E[min(Poisson(R w), b - 1)]              (HarmonyBatch, IWQoS'24, Eq. 8, made exact)

and here half of them stay open for the mean less its deviation, half for as much more. A request
costs what executing a batch of mean size costs, shared (Eq. 6), plus its part of the instances
where those are paid for. The paper's Eq. 11 takes batches for full, which makes them up to a tenth
too cheap. The allowance is a quantile of the execution time: few requests wait all of the window,
so that the larger the batch, the lower it may be. `settling` finds the exact one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from carpool.latency import Configuration
from carpool.latency.arrays import Sizes, configurations, occupied, predicted
from scaler.core.cost_arrays import executions, lifetimes
from scaler.core.harmony.pooling import Pooled
from scaler.core.laws.poisson_windows import poisson
from scaler.core.placement import CORE_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.latency import LatencyModel
    from scaler.core.arrivals.processes import Times
    from scaler.core.cost import Billing

__all__ = ["Offers", "offers"]

_KNEES: Times = np.geomspace(0.01, 1000.0, 120)
_BLOCK = 1 << 14  # numbers at once, which fit into a cache
_ROOTS = 4096  # places of the table of mean batch sizes, even in the square root of the members
_FEW = 700.0  # members expected, with more of whom none is too rare for a float
_LARGEST = 1 << 32  # requests in no batch
_QUICKER = 0.01  # part of the allowance that a dearer configuration must save to be looked at


class _Priced(NamedTuple):
    """Configurations, and what they ask for; arrays of one shape and one axis.

    Attributes:
        batch, cpu, gpu: The instance, and its largest batch.
        allowance_s: Seconds of every objective that are left for the execution.
        least_s: The tightest objective that a full batch meets though nobody waits.
        alone: Money for executing a batch of one.
        full: Money for executing a full batch.
        alone_s, full_s: Mean seconds of the same.
        held: Money for an instance, a second.
    """

    batch: Times
    cpu: Times
    gpu: Times
    allowance_s: Times
    least_s: Times
    alone: Times
    full: Times
    alone_s: Times
    full_s: Times
    held: Times


class Offers:
    """Configurations that may pay, as arrays.

    Attributes:
        fastest_s: The tightest objective that any of them meets; infinite without any.
        on_gpu: Which of them are on a GPU.
    """

    def __init__(self, priced: _Priced) -> None:
        self._priced = priced
        self.fastest_s = float(priced.least_s.min(initial=math.inf))
        self.on_gpu: npt.NDArray[np.bool_] = priced.gpu > 0
        # Money and seconds of a batch are taken for linear in its size.
        steps = np.maximum(priced.batch - 1, 1)
        self._item = np.where(priced.batch > 1, priced.full - priced.alone, 0.0) / steps
        self._fixed = priced.alone - self._item
        self._item_s = np.where(priced.batch > 1, priced.full_s - priced.alone_s, 0.0) / steps
        self._fixed_s = priced.alone_s - self._item_s
        sizes, self._roots_per_one = _mean_sizes(int(priced.batch.max(initial=1)))
        self._row = (priced.batch.astype(np.intp) - 1) * _ROOTS
        self._flat = sizes.ravel()
        self._knees: dict[float, float] = {}

    def __len__(self) -> int:
        return len(self._priced.batch)

    def configuration(self, place: int) -> tuple[Configuration, float]:
        """An offer's, and about the allowance that it needs.

        Args:
            place: Of the offer, from 0 on.
        """
        of = self._priced
        size = Configuration(int(of.batch[place]), float(of.cpu[place]), float(of.gpu[place]))
        return size, float(of.allowance_s[place])

    def cheapest(self, groups: Pooled) -> tuple[Times, npt.NDArray[np.intp]]:
        """The least money per request for each group, and the place of its offer.

        Args:
            groups: Arrays of shape ``(groups,)``.

        Returns:
            Infinity and 0 where no configuration meets the objective.
        """
        count = len(groups.rates_rps)
        costs, places = np.full(count, math.inf), np.zeros(count, dtype=np.intp)
        if not len(self):
            return costs, places
        step = max(1, _BLOCK // len(self))
        for start in range(0, count, step):
            part = slice(start, start + step)
            each = self.costs(Pooled(*(column[part] for column in groups)))
            places[part] = each.argmin(axis=1)
            costs[part] = each[np.arange(len(each)), places[part]]
        return costs, places

    def costs(self, groups: Pooled) -> Times:
        """Money per request for each group on each offer; shape ``(groups, offers)``."""
        rate, slo_s = groups.rates_rps[:, None], groups.slos_s[:, None]
        window_s = np.maximum(groups.open_s[:, None] - self._priced.allowance_s, 0.0)
        apart_s = np.minimum(groups.spread_s[:, None], window_s)
        mean = self._mean_size(rate * (window_s - apart_s))
        if groups.spread_s.any():
            mean = (mean + self._mean_size(rate * (window_s + apart_s))) / 2
        found: Times = self._fixed / mean + self._item
        if self._priced.held.any():
            busy = rate * (self._fixed_s / mean + self._item_s)
            about = busy + np.sqrt(busy) + 1  # instances, about as `erlang` has them
            found += self._priced.held * about / rate
        found[self._priced.least_s > slo_s] = math.inf
        return found

    def _mean_size(self, members: Times) -> Times:
        """Of batches of each offer, with so many later members expected but for its largest."""
        place = np.minimum(np.sqrt(members) * self._roots_per_one + 0.5, _ROOTS - 1)
        return self._flat.take(self._row + place.astype(np.intp))

    def knee_rps(self, slo_s: float) -> float:
        """The rate from which on an application with this objective is cheapest on a GPU.

        Infinite if it is on none of the rates that are tried, which are a tenth apart. There is
        at least one configuration.
        """
        if slo_s not in self._knees:
            slos = np.full(len(_KNEES), slo_s)
            _, places = self.cheapest(Pooled(_KNEES, slos, np.zeros_like(slos), slos))
            on_cores = [at for at, place in enumerate(places) if not self.on_gpu[place]]
            first = on_cores[-1] + 1 if on_cores else 0
            self._knees[slo_s] = float(_KNEES[first]) if first < len(_KNEES) else math.inf
        return self._knees[slo_s]


def offers(model: LatencyModel, billing: Billing, max_batch: int, miss: float) -> Offers:
    """The price list of a model, without what is both slower and dearer than something else.

    Args:
        model: How long batches take.
        billing: What that costs; where nothing costs anything, resources count instead.
        max_batch: Most requests in a batch.
        miss: Share of requests that may be late.
    """
    priced = _asked(model, billing, configurations(model, max_batch), miss)
    kept = _undominated(priced)
    return Offers(_Priced(*(column[kept] for column in priced)))


def _asked(model: LatencyModel, billing: Billing, sizes: Sizes, miss: float) -> _Priced:
    """Those of which the model knows enough."""
    # Of a batch of b about one waits all of the window.
    hurried = 1 - np.minimum(miss * sizes.batch, max(miss, 0.5))
    full_s, allowance_s, least_s = (
        predicted(model, sizes, share) for share in (np.array([0.5]), hurried, np.array([1 - miss]))
    )
    # Written so that what is not a number is no offer.
    good = (full_s > 0) & (full_s < math.inf) & (allowance_s <= least_s) & (least_s < math.inf)
    good &= sizes.cpu > 0
    sizes = Sizes(*(column[good] for column in sizes))
    full_s, allowance_s, least_s = full_s[good], allowance_s[good], least_s[good]
    alone_s = predicted(model, sizes._replace(batch=np.array([1.0])), np.array([0.5]))
    alone_s = np.where(alone_s > 0, alone_s, full_s)
    instances = occupied(model, sizes)
    alone, full = (executions(billing, instances, at) for at in (alone_s, full_s))
    held = lifetimes(billing, instances)
    units = CORE_WEIGHT * instances.cpu + instances.gpu  # `resource_units`
    free = (full == 0) & (held == 0)
    alone, full = np.where(free, units * alone_s, alone), np.where(free, units * full_s, full)
    return _Priced(*sizes, allowance_s, least_s, alone, full, alone_s, full_s, held)


def _undominated(priced: _Priced) -> list[int]:
    """Places of the quickest of each kind and batch, and of what is cheaper than all quicker."""
    each = (priced.full + priced.held * priced.full_s) / priced.batch
    kinds = np.where(priced.gpu > 0, _LARGEST + priced.batch, priced.batch)
    order = np.lexsort((priced.allowance_s, each, kinds))
    starts = np.flatnonzero(np.diff(kinds[order], prepend=0.0))
    allowances = priced.allowance_s[order]
    least = np.minimum.reduceat(allowances, starts) if len(starts) else allowances
    lengths = np.diff(starts, append=len(order))
    kept: list[int] = []
    rows = (order, kinds[order], allowances, np.repeat(least, lengths))
    before, best_s = 0.0, math.inf
    for place, kind, allowance_s, least_s in zip(*(row.tolist() for row in rows), strict=True):
        if kind != before:
            before, best_s = kind, math.inf
        quickest = allowance_s == least_s < best_s
        if allowance_s < best_s * (1 - _QUICKER) or quickest:
            best_s = allowance_s
            kept.append(place)
    return kept


def _mean_sizes(largest: int) -> tuple[Times, float]:
    """Mean sizes of batches of up to 1, 2, ... by the root of the members; places per root."""
    end = largest + 8 * math.sqrt(largest) + 16
    roots = np.linspace(0, math.sqrt(end), _ROOTS)
    fewer, sizes = np.zeros(_ROOTS), np.ones((largest, _ROOTS))
    for number, share in enumerate(_shares(roots**2, largest - 1), 1):
        fewer += share
        np.add(sizes[number - 1], 1 - fewer, out=sizes[number])
    return sizes, (_ROOTS - 1) / float(roots[-1])


def _shares(members: Times, count: int) -> Iterator[Times]:
    """Probabilities of 0, 1, ... where so many are expected."""
    if float(members[-1]) > _FEW:
        yield from poisson(members, count).T
        return
    share = np.exp(-members)
    for number in range(1, count + 1):
        yield share
        share = share * members / number
