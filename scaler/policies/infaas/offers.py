"""Possible instances of a function: its variants, each with the batch size that suits an objective.

A variant's largest batch depends on the objective alone, not on the load, so a change of load
starts no instances only for their batch size. A batch that has to wait for another must still be in
time, so it may take half the objective; a single request may take all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from carpool.recent import Recent, Same
from carpool.scaling import VariantSet
from scaler.policies.common.staffing import needed_rps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from carpool.scaling import Application, FunctionLoad, LatencyModel, Size

__all__ = ["Offer", "Offers", "longest_s", "single_offers"]

_KEPT = 4096  # lists kept; a scaler has fewer functions


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """An instance size of one variant.

    Attributes:
        size: The size, with the variant's name.
        accuracy: Accuracy of the variant; 1 if the model has no variants.
        load_s: Seconds to load an instance.
    """

    size: Size
    accuracy: float
    load_s: float

    def suits(self, app: Application) -> bool:
        """Return whether it serves the application accurately and fast enough."""
        named = app.variant in ("", self.size.variant)
        return named and self.accuracy >= app.accuracy and _in_time(self.size, app.slo_s)

    def worth_rps(self, app: Application, rate_rps: float, need_rps: float, miss: float) -> float:
        """Return the rate of a need that an instance serves; 0 if it is unsuitable.

        It is assumed that instances of this offer alone serve the need.

        Args:
            app: The application served.
            rate_rps: Requests per second.
            need_rps: The same, with reserve.
            miss: Share of requests that may be late; 1 if arrivals are assumed to be regular.
        """
        if not self.suits(app):
            return 0.0
        size = self.size
        if miss >= 1 or not rate_rps:
            return size.rate_rps
        slack_s = app.slo_s - size.exec_s
        staffed = needed_rps(rate_rps, size.exec_s, slack_s, miss, size.batch) if slack_s else 0
        return size.rate_rps * need_rps / max(staffed, need_rps) if staffed < math.inf else 0.0


class Offers:
    """The offers of each function; each list is computed once."""

    def __init__(self) -> None:
        self._known: Recent[tuple[Offer, ...]] = Recent(_KEPT)

    def of(self, load: FunctionLoad) -> tuple[Offer, ...]:
        """Return the offers that meet at least one application's objective.

        They are not filtered by accuracy. The cheapest comes first; repeated calls return the same
        tuple object.
        """
        slos = frozenset(app.slo_s for app in load.apps) or frozenset({load.slo_s})
        key = (Same(load.model), slos, load.percentile, load.max_batch, load.prices)
        return self._known.of(key, lambda: tuple(sorted(_offers(load, slos), key=_by_price)))


def _by_price(offer: Offer) -> tuple[float, float, int, str]:
    size = offer.size
    return size.price_per_s, size.exec_s, -size.batch, size.variant


def _offers(load: FunctionLoad, slos: frozenset[float]) -> Iterator[Offer]:
    for variant, accuracy, model in _variants(load.model):
        sizes: dict[tuple[float, float], list[Size]] = {}
        for configuration in model.configurations(load.max_batch):
            size = _size(load, variant, accuracy, configuration)
            if size:
                sizes.setdefault((size.cpu, size.gpu), []).append(size)
        for of_shape in sizes.values():
            chosen = {}
            for slo_s in sorted(slos):
                fitting = [size for size in of_shape if _in_time(size, slo_s)]
                if fitting:
                    best = max(fitting, key=lambda size: (size.rate_rps, -size.batch))
                    chosen[best.batch] = best
            for size in chosen.values():
                yield Offer(size, accuracy, model.load_s)


def _variants(model: LatencyModel) -> list[tuple[str, float, LatencyModel]]:
    if not isinstance(model, VariantSet):
        return [("", 1.0, model)]
    return [(each.name, each.accuracy, model.of(each.name) or model) for each in model.variants]


def single_offers(load: FunctionLoad, offers: Sequence[Offer]) -> list[Offer]:
    """Return each variant for one request at a time, unless it is among the offers.

    No known objective requires it, but the next request may.
    """
    known = {offer.size.variant for offer in offers if offer.size.batch == 1}
    singles = []
    for variant, accuracy, model in _variants(load.model):
        for configuration in () if variant in known else model.configurations(1):
            size = _size(load, variant, accuracy, configuration)
            if size:
                singles.append(Offer(size, accuracy, model.load_s))
    return singles


def longest_s(size: Size) -> float:
    """Return the longest response time: a batch may have left just before a request arrived."""
    return size.exec_s if size.batch == 1 else 2 * size.exec_s


def _in_time(size: Size, slo_s: float) -> bool:
    return longest_s(size) <= slo_s


def _size(
    load: FunctionLoad, variant: str, accuracy: float, configuration: tuple[int, float, float]
) -> Size | None:
    size = load.size(*configuration, variant)
    return replace(size, accuracy=accuracy, min_rps=0.0) if size else None
