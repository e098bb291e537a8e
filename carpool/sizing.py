"""Instance sizes that meet an objective, with the request rates that each can serve.

INFless's Eq. 1 (ASPLOS'22): an instance that takes ``t`` seconds for a batch of ``b`` can serve
``b / t`` requests per second, and needs ``b / (slo - t)`` for its batch to be full before the first
request in it must leave. The next batch collects while one runs, so ``t`` may be at most half the
objective; a single request is a full batch at once, so for ``b = 1`` it may be the entire objective
and no rate is too low. The paper rounds the number of batches per second to integers, down for the
maximum and up for the minimum; on request, so does this module. With this rounding, the minimum can
exceed the maximum, and a batch that takes more than a second has no rate at all. Nothing here
depends on servers or loads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from carpool.recent import Recent, Same
from carpool.scaling import Size, resource_units
from carpool.variants.variant_set import VariantSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from carpool.latency import LatencyModel, Resources
    from carpool.scaling import FunctionLoad, Prices

__all__ = ["SIZES", "Objective", "SizeTable", "sizes"]

_KEPT = 4096  # tables kept by a `SizeTable`; a scaler has fewer models and objectives


@dataclass(frozen=True, slots=True)
class Objective:
    """The objective that an instance must meet.

    Attributes:
        slo_s: Latency objective of a request, the tightest of all applications.
        percentile: Share of requests that must meet it.
        max_batch: Maximum number of requests in a batch.
        offset: Share by which predicted execution times are raised, to allow for prediction errors.
        rounded: Whether rates are in whole batches per second, as in the paper.
    """

    slo_s: float
    percentile: float = 0.99
    max_batch: int = 32
    offset: float = 0.1
    rounded: bool = False

    @classmethod
    def of(cls, load: FunctionLoad, offset: float, *, rounded: bool = False) -> Objective:
        """Return the tightest objective of a function's applications.

        Args:
            load: Load of the function; if its model's error is known, that is the offset.
            offset: Offset if the error is unknown.
            rounded: As the attribute.
        """
        known = offset if load.error is None else load.error
        return cls(load.tightest_s, load.percentile, load.max_batch, known, rounded)


class _Row(NamedTuple):
    """A configuration of a model, with the values that do not depend on the latency objective."""

    batch: int
    cpu: float
    gpu: float
    predicted_s: float
    resources: Resources
    units: float


def sizes(
    model: LatencyModel, objective: Objective, prices: Prices | None = None
) -> tuple[Size, ...]:
    """Return all configurations of the model that meet the objective, in the model's order."""
    rows = _rows(model, objective.max_batch, objective.percentile)
    return tuple(_sizes(rows, model.load_s, objective, prices))


def _rows(model: LatencyModel, max_batch: int, percentile: float) -> Iterator[_Row]:
    for batch, cpu, gpu in model.configurations(max_batch):
        predicted_s = model.predict(batch, cpu, gpu, percentile)
        # Written so that NaN meets no objective. A plan needs at least a part of a core.
        if predicted_s is None or not (0 < predicted_s < math.inf and cpu > 0):
            continue
        resources = model.resources(batch, cpu, gpu)
        units = resource_units(resources.cpu, resources.gpu)
        if 0 < units < math.inf:
            yield _Row(batch, cpu, gpu, predicted_s, resources, units)


def _sizes(
    rows: Iterable[_Row], load_s: float, objective: Objective, prices: Prices | None
) -> Iterator[Size]:
    for batch, cpu, gpu, predicted_s, resources, units in rows:
        exec_s = predicted_s * (1 + objective.offset)
        window = _window(batch, exec_s, objective)
        if window is not None:
            yield Size(
                batch,
                cpu,
                gpu,
                resources=resources,
                exec_s=exec_s,
                min_rps=window[0],
                rate_rps=window[1],
                price_per_s=(prices.per_second(resources) if prices else 0.0) or units,
                load_s=load_s,
            )


def _window(batch: int, exec_s: float, objective: Objective) -> tuple[float, float] | None:
    """Return the least and most requests per second (Eq. 1); None if the objective is missed."""
    if exec_s > (objective.slo_s if batch == 1 else objective.slo_s / 2):
        return None
    if not objective.rounded:
        return 0.0 if batch == 1 else batch / (objective.slo_s - exec_s), batch / exec_s
    low = 1 if batch == 1 else math.ceil(1 / (objective.slo_s - exec_s))
    high = math.floor(1 / exec_s)
    return (float(low * batch), float(high * batch)) if high else None


class SizeTable:
    """Sizes by model, objective and prices, each computed once.

    Predictions of a model are shared by all objectives with the same percentile.
    """

    def __init__(self) -> None:
        self._rows: Recent[tuple[_Row, ...]] = Recent(_KEPT)
        self._known: Recent[tuple[Size, ...]] = Recent(_KEPT)

    def of(
        self, model: LatencyModel, objective: Objective, prices: Prices | None = None
    ) -> tuple[Size, ...]:
        """As `sizes`, but returns the same tuple every time."""
        make = partial(self._sizes, model, objective, prices)
        return self._known.of((Same(model), objective, prices), make)

    def offered(self, load: FunctionLoad, objective: Objective, prices: Prices) -> tuple[Size, ...]:
        """Return the sizes for all applications of a function, of variants accurate enough."""
        model = load.model
        if not isinstance(model, VariantSet):
            return self.of(model, objective, prices)
        least = max([app.accuracy for app in load.apps], default=0.0)
        make = partial(self._of_variants, model, objective, prices, least)
        return self._known.of((Same(model), objective, prices, least), make)

    def _sizes(
        self, model: LatencyModel, objective: Objective, prices: Prices | None
    ) -> tuple[Size, ...]:
        key = (objective.max_batch, objective.percentile)
        rows = self._rows.of((Same(model), *key), lambda: tuple(_rows(model, *key)))
        return tuple(_sizes(rows, model.load_s, objective, prices))

    def _of_variants(
        self, model: VariantSet, objective: Objective, prices: Prices, least: float
    ) -> tuple[Size, ...]:
        return tuple(
            replace(size, variant=each.name, accuracy=each.accuracy)
            for each in model.variants
            if each.accuracy >= least
            for size in self._sizes(model.of(each.name) or model, objective, prices)
        )


SIZES = SizeTable()  # shared by the guard and policies, which mostly use the same sizes
