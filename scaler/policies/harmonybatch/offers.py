"""Cost of a request on every configuration, for many loads at once: the price list of groups.

A group of applications with the total rate ``R`` that shares an instance leaves each of its
requests a window, its objective less the same allowance ``x`` for the execution. Its batches stay
open for ``V - x`` in the mean (`pooling`), whatever the configuration. Batches that stay open for
``w`` have a mean size of

    1 + E[min(Poisson(R w), b - 1)]              (HarmonyBatch, IWQoS'24, Eq. 8, made exact)

and half of them are assumed to stay open for the mean less one standard deviation, half for the
mean plus one. The cost of a request is its share of executing a batch of mean size (Eq. 6), plus
its share of the instances if those are paid for. The paper's Eq. 11 assumes full batches, which
makes them up to a tenth too cheap. The allowance is a quantile of the execution time: few requests
wait for the whole window, so the larger the batch, the lower it may be. `settling` finds the exact
one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from carpool.scaling import Configuration
from scaler.policies.harmonybatch.mean_sizes import mean_sizes
from scaler.policies.harmonybatch.pooling import Pooled
from scaler.policies.harmonybatch.pricing import Priced, priced

if TYPE_CHECKING:
    from carpool.arrivals.processes import Times
    from carpool.scaling import Billing, LatencyModel

__all__ = ["Offers", "offers"]

_KNEES: Times = np.geomspace(0.01, 1000.0, 120)
_TOGETHER = 64  # groups that are priced at once, so that their arrays fit into a CPU cache
_SURELY = 0.95  # part of the objective that must be met, so that the exact law meets all of it
_MARGIN = 1.05  # tolerance for the price of a single request, as prices are approximate


class _Column(NamedTuple):
    """Columns needed for pricing; cost and time of a batch are assumed to be linear in its size.

    Attributes:
        allowance_s, least_s, price_per_s: As `Priced`.
        fixed, item: Cost per batch, whatever its size, and per request in it.
        fixed_s, item_s: Seconds per batch and per request.
    """

    allowance_s: Times
    least_s: Times
    price_per_s: Times
    fixed: Times
    item: Times
    fixed_s: Times
    item_s: Times


class _Singles:
    """Cost of a request served alone; infinite if waiting instances are paid for."""

    def __init__(self, priced: Priced) -> None:
        places = np.flatnonzero((priced.batch == 1) & ~priced.price_per_s.any())
        order = places[priced.least_s[places].argsort()]
        self._least_s = priced.least_s[order]
        self._cost = np.minimum.accumulate(np.append(math.inf, priced.alone[order]))

    def upto(self, slo_s: float) -> float:
        """Return the lowest cost that meets an objective; infinite if none does."""
        return float(self._cost[self._least_s.searchsorted(slo_s, side="right")])


class Offers:
    """Configurations that may pay, as arrays, ordered by the least that a request can cost on them.

    Attributes:
        fastest_s: The tightest objective that any of them meets; infinite if there are none.
        on_gpu: Whether each of them is on a GPU.
    """

    def __init__(self, priced: Priced) -> None:
        self._priced, self._least = priced, priced.least
        self.fastest_s = float(priced.least_s.min(initial=math.inf))
        self.on_gpu: npt.NDArray[np.bool_] = priced.gpu > 0
        self._alone = _Singles(priced)
        self._sizes = mean_sizes(int(priced.batch.max(initial=1)))
        self._rows = self._sizes.rows(priced.batch)
        self._columns = _columns(priced)
        self._knees: dict[float, float] = {}

    def __len__(self) -> int:
        return len(self._least)

    def configuration(self, place: int) -> tuple[Configuration, float]:
        """Return an offer's configuration and the approximate allowance that it needs.

        Args:
            place: Index of the offer.
        """
        of = self._priced
        size = Configuration(int(of.batch[place]), float(of.cpu[place]), float(of.gpu[place]))
        return size, float(of.allowance_s[place])

    def cheapest(self, groups: Pooled) -> tuple[Times, npt.NDArray[np.intp]]:
        """Return the lowest cost per request for each group, and the index of its offer.

        Args:
            groups: Arrays of shape ``(groups,)``.

        Returns:
            Infinity and 0 if no configuration meets the objective.
        """
        count = len(groups.rates_rps)
        costs, places = np.full(count, math.inf), np.zeros(count, dtype=np.intp)
        if not len(self):
            return costs, places
        for start in range(0, count, _TOGETHER):
            part = slice(start, start + _TOGETHER)
            each = self.costs(Pooled(*(column[part] for column in groups)))
            places[part] = each.argmin(axis=1)
            costs[part] = each[np.arange(len(each)), places[part]]
        return costs, places

    def costs(self, groups: Pooled) -> Times:
        """Return the cost per request for each group on the first offers, the only candidates.

        On all others a request costs more, even in a full batch, than it does alone.

        Returns:
            Shape ``(groups, offers)``.
        """
        alone = self._alone.upto(float(groups.slos_s.min()) * _SURELY)
        count = int(self._least.searchsorted(alone * _MARGIN, side="right"))
        of = _Column(*(column[:count] for column in self._columns))
        rate, open_s, spread_s, slo_s = (column[:, None] for column in groups)
        window_s = np.maximum(open_s - of.allowance_s, 0.0)
        apart_s = np.minimum(spread_s, window_s)
        shorter, longer = self._sizes.at(
            self._rows[:count], rate * np.array([window_s - apart_s, window_s + apart_s])
        )
        mean = (shorter + longer) / 2
        costs_of: Times = of.fixed / mean + of.item
        if of.price_per_s.any():
            busy = rate * (of.fixed_s / mean + of.item_s)
            about = busy + np.sqrt(busy) + 1  # instances, about as `erlang` has them
            costs_of += of.price_per_s * about / rate
        costs_of[of.least_s > slo_s] = math.inf
        return costs_of

    def knee_rps(self, slo_s: float) -> float:
        """Return the rate from which an application with this objective is cheapest on a GPU.

        Infinity if it is not at any of the rates tried, which are a tenth apart. At least one
        configuration is required.
        """
        if slo_s not in self._knees:
            slos = np.full(len(_KNEES), slo_s)
            _, places = self.cheapest(Pooled(_KNEES, slos, np.zeros_like(slos), slos))
            on_cores = [at for at, place in enumerate(places) if not self.on_gpu[place]]
            first = on_cores[-1] + 1 if on_cores else 0
            self._knees[slo_s] = float(_KNEES[first]) if first < len(_KNEES) else math.inf
        return self._knees[slo_s]


def offers(model: LatencyModel, billing: Billing, max_batch: int, miss: float) -> Offers:
    """Return the price list of a model, without offers that are both slower and more expensive.

    Args:
        model: Latency model of the function.
        billing: What executions and instances cost; if all is free, resources count instead.
        max_batch: Maximum number of requests in a batch.
        miss: Share of requests that may be late.
    """
    return Offers(priced(model, billing, max_batch, miss))


def _columns(priced: Priced) -> _Column:
    several, steps = priced.batch > 1, np.maximum(priced.batch - 1, 1)
    item = np.where(several, priced.full - priced.alone, 0.0) / steps
    item_s = np.where(several, priced.full_s - priced.alone_s, 0.0) / steps
    return _Column(
        priced.allowance_s,
        priced.least_s,
        priced.price_per_s,
        priced.alone - item,
        item,
        priced.alone_s - item_s,
        item_s,
    )
