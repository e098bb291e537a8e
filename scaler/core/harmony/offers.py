"""What a request costs on every configuration, for many loads at once: the price list of groups.

A group of applications with the total rate ``R`` that shares an instance leaves its requests a
window each, their objective less the same allowance ``x`` for the execution. Its batches stay open
for ``V - x`` in the mean (`pooling`), whatever the configuration. Here such a batch is taken for
one of a single application with this window, so that its mean size is

    1 + E[min(Poisson(R (V - x)), b - 1)]        (HarmonyBatch, IWQoS'24, Eq. 8, made exact)

and a request costs what executing that many costs, shared (Eq. 6), plus its part of the instances
where those are paid for. The paper's Eq. 11 takes batches for full, which makes them up to a tenth
too cheap. The allowance is a quantile of the execution time: few requests wait all of the window,
so that the larger the batch, the lower it may be. `settling` finds the exact one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from scaler.core.laws.merged_windows import poisson
from scaler.core.placement import resource_units

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.latency import Configuration, LatencyModel
    from scaler.core.arrivals.processes import Times
    from scaler.core.cost import Billing

__all__ = ["Offer", "Offers", "offers"]

_KNEES: Times = np.geomspace(0.01, 1000.0, 120)
_BLOCK = 1 << 21  # numbers in memory at once
_ROOTS = 4096  # places of the table of mean batch sizes, even in the square root of the members
_QUICKER = 0.01  # part of the allowance that a dearer configuration must save to be looked at


@dataclass(frozen=True, slots=True)
class Offer:
    """A configuration and what it asks for.

    Attributes:
        configuration: The instance, and its largest batch.
        allowance_s: Seconds of every objective that are left for the execution.
        least_s: The tightest objective that a full batch meets though nobody waits.
        alone: Money for executing a batch of one.
        full: Money for executing a full batch.
        alone_s, full_s: Mean seconds of the same.
        held: Money for an instance, a second.
    """

    configuration: Configuration
    allowance_s: float
    least_s: float
    alone: float
    full: float
    alone_s: float
    full_s: float
    held: float

    @property
    def each(self) -> float:
        """Money for a request of a full batch; instances are busy all the time."""
        return (self.full + self.held * self.full_s) / self.configuration.batch


class Offers:
    """Configurations that may pay, as arrays.

    Attributes:
        listed: One or more; none where the model knows nothing.
        fastest_s: The tightest objective that any of them meets; infinite without any.
    """

    def __init__(self, listed: Sequence[Offer]) -> None:
        self.listed = tuple(listed)
        self.fastest_s = min((offer.least_s for offer in listed), default=math.inf)
        batch = np.array([offer.configuration.batch for offer in listed], dtype=np.intp)
        self.on_gpu: npt.NDArray[np.bool_] = np.array([o.configuration.gpu > 0 for o in listed])
        self._allowance = np.array([offer.allowance_s for offer in listed])
        self._least = np.array([offer.least_s for offer in listed])
        # Money and seconds of a batch are taken for linear in its size.
        steps = np.maximum(batch - 1, 1)
        alone, full = (np.array([getattr(o, n) for o in listed]) for n in ("alone", "full"))
        self._item = np.where(batch > 1, full - alone, 0.0) / steps
        self._fixed = alone - self._item
        alone, full = (np.array([getattr(o, n) for o in listed]) for n in ("alone_s", "full_s"))
        self._item_s = np.where(batch > 1, full - alone, 0.0) / steps
        self._fixed_s = alone - self._item_s
        self._held = np.array([offer.held for offer in listed])
        sizes, self._roots_per_one = _mean_sizes(int(batch.max(initial=1)))
        self._row = (batch - 1) * _ROOTS
        self._flat = sizes.ravel()
        self._knees: dict[float, float] = {}

    def cheapest(
        self, rates_rps: Times, pooled_s: Times, slo_s: Times
    ) -> tuple[Times, npt.NDArray[np.intp]]:
        """The least money per request for each group, and the place of its offer in ``listed``.

        Args:
            rates_rps: Total rate of each group, above 0; shape ``(groups,)``.
            pooled_s: ``V`` of each, in seconds; likewise.
            slo_s: The tightest objective of each, in seconds; likewise.

        Returns:
            Infinity and 0 where no configuration meets the objective.
        """
        count = len(rates_rps)
        costs, places = np.full(count, math.inf), np.zeros(count, dtype=np.intp)
        if not self.listed:
            return costs, places
        step = max(1, _BLOCK // len(self.listed))
        for start in range(0, count, step):
            part = slice(start, start + step)
            each = self.costs(rates_rps[part], pooled_s[part], slo_s[part])
            places[part] = each.argmin(axis=1)
            costs[part] = each[np.arange(len(each)), places[part]]
        return costs, places

    def costs(self, rates_rps: Times, pooled_s: Times, slo_s: Times) -> Times:
        """Money per request for each group on each offer; shape ``(groups, offers)``."""
        rate = rates_rps[:, None]
        members = rate * np.maximum(pooled_s[:, None] - self._allowance, 0.0)
        place = np.minimum(np.sqrt(members) * self._roots_per_one + 0.5, _ROOTS - 1)
        mean = self._flat.take(self._row + place.astype(np.intp))
        found: Times = self._fixed / mean + self._item
        if self._held.any():
            busy = rate * (self._fixed_s / mean + self._item_s)
            found = found + self._held * (busy + np.sqrt(busy) + 1) / rate  # about as `erlang`
        return np.where(self._least <= slo_s[:, None], found, math.inf)

    def knee_rps(self, slo_s: float) -> float:
        """The rate from which on an application with this objective is cheapest on a GPU.

        Infinite if it is on none of the rates that are tried, which are a tenth apart. There is
        at least one configuration.
        """
        if slo_s not in self._knees:
            slos = np.full(len(_KNEES), slo_s)
            _, places = self.cheapest(_KNEES, slos, slos)
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
    listed = [
        offer
        for configuration in model.configurations(max_batch)
        if (offer := _offer(model, billing, configuration, miss))
    ]
    kept: list[Offer] = []
    for _, group in sorted(_by_kind(listed).items()):
        best_s = math.inf
        fastest = min(group, key=lambda each: (each.allowance_s, each.each))
        for offer in sorted(group, key=lambda each: (each.each, each.allowance_s)):
            if offer.allowance_s < best_s * (1 - _QUICKER) or offer is fastest:
                best_s = offer.allowance_s
                kept.append(offer)
    return Offers(kept)


def _by_kind(listed: Sequence[Offer]) -> dict[tuple[bool, int], list[Offer]]:
    kinds: dict[tuple[bool, int], list[Offer]] = {}
    for offer in listed:
        size = offer.configuration
        kinds.setdefault((size.gpu > 0, size.batch), []).append(offer)
    return kinds


def _offer(
    model: LatencyModel, billing: Billing, configuration: Configuration, miss: float
) -> Offer | None:
    batch, cpu, gpu = configuration
    # Of a batch of b about one waits all of the window, and half of the misses are others'.
    quantile = 1 - min(miss * max(1.0, batch / 2), max(miss, 0.5))
    full_s, allowance_s, least_s = (
        model.predict(batch, cpu, gpu, at) or math.nan for at in (0.5, quantile, 1 - miss)
    )
    # Written so that what is not a number is no offer.
    if not (0 < full_s < math.inf and allowance_s <= least_s < math.inf and cpu > 0):
        return None
    alone_s = model.predict(1, cpu, gpu) or full_s
    resources = model.resources(*configuration)
    alone, full = (billing.execution(resources, at) for at in (alone_s, full_s))
    held = billing.lifetime(resources, 1.0)
    if full == held == 0:
        units = resource_units(resources.cpu, resources.gpu)
        alone, full = units * alone_s, units * full_s
    return Offer(configuration, allowance_s, least_s, alone, full, alone_s, full_s, held)


def _mean_sizes(largest: int) -> tuple[Times, float]:
    """Mean sizes of batches of up to 1, 2, ... by the root of the members; places per root."""
    end = largest + 8 * math.sqrt(largest) + 16
    roots = np.linspace(0, math.sqrt(end), _ROOTS)
    below = poisson(roots**2, largest).cumsum(axis=1)
    more = np.concatenate([np.zeros((_ROOTS, 1)), (1 - below[:, :-1]).cumsum(axis=1)], axis=1)
    return 1.0 + more.T, (_ROOTS - 1) / float(roots[-1])
