"""What instances of a function may be: its variants, each with the batch that suits an objective.

A variant's largest batch depends on the objective alone, not on the load, so that a change of the
load starts no instances for the sake of their batch. A batch that has to wait for another must
still be in time, so it may take half the objective; a single request may take all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from carpool.latency.variant_set import VariantSet
from scaler.planning.recent import Recent, Same
from scaler.policies.common.staffing import needed_rps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from carpool.latency import LatencyModel
    from carpool.scaling import Application, FunctionLoad, Size

__all__ = ["Offer", "Offers", "longest_s", "single_offers"]

_KEPT = 4096  # lists kept; a scaler has fewer functions


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """Instances of one variant.

    Attributes:
        size: With the variant's name.
        accuracy: Of its answers; 1 where the model has no variants.
        load_s: Seconds to load one.
    """

    size: Size
    accuracy: float
    load_s: float

    def suits(self, app: Application) -> bool:
        """Whether it answers the application accurately and soon enough."""
        named = app.variant in ("", self.size.variant)
        return named and self.accuracy >= app.accuracy and _in_time(self.size, app.slo_s)

    def worth_rps(self, app: Application, rate_rps: float, need_rps: float, miss: float) -> float:
        """What an instance takes of a need, if as many run as it takes alone; 0: it does not suit.

        Args:
            app: Whose requests are served.
            rate_rps: Requests per second.
            need_rps: The same, with reserve.
            miss: Share of requests that may be late; 1: arrivals are taken for regular.
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
    """The offers of each function, each list made once."""

    def __init__(self) -> None:
        self._known: Recent[tuple[Offer, ...]] = Recent(_KEPT)

    def of(self, load: FunctionLoad) -> tuple[Offer, ...]:
        """All offers that suit at least an application's objective, whatever their accuracy.

        The cheapest comes first; it is the very same tuple every time.
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
    """Each variant for one request at a time, where that is not among the offers.

    No objective that is known of asks for it, but the next request may.
    """
    known = {offer.size.variant for offer in offers if offer.size.batch == 1}
    found = []
    for variant, accuracy, model in _variants(load.model):
        for configuration in () if variant in known else model.configurations(1):
            size = _size(load, variant, accuracy, configuration)
            if size:
                found.append(Offer(size, accuracy, model.load_s))
    return found


def longest_s(size: Size) -> float:
    """How long an answer takes at the most: a batch may have left just before a request came."""
    return size.exec_s if size.batch == 1 else 2 * size.exec_s


def _in_time(size: Size, slo_s: float) -> bool:
    return longest_s(size) <= slo_s


def _size(
    load: FunctionLoad, variant: str, accuracy: float, configuration: tuple[int, float, float]
) -> Size | None:
    size = load.size(*configuration, variant)
    return replace(size, accuracy=accuracy, min_rps=0.0) if size else None
