"""The sizes of instance that meet an objective, with the rates each can be held at.

INFless's Eq. 1 (ASPLOS'22): an instance that takes ``t`` seconds for a batch of ``b`` can take
``b / t`` requests per second, and needs ``b / (slo - t)`` for its batch to be full before the first
request in it must leave. The next batch collects while one runs, so ``t`` may be half the objective
at most; a single request is a full batch at once, so for ``b = 1`` it may be all of it and no rate
is too low. The paper rounds the number of batches per second to whole ones, down for the most and
up for the least; on request so does this. So rounded, the least can be more than the most, and a
batch that takes more than a second has no rate at all. Nothing here knows servers or loads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from carpool.latency.variant_set import VariantSet
from carpool.scaling import Size, class_name, resource_units
from scaler.planning.recent import Recent, Same

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from carpool.latency import LatencyModel, Resources
    from carpool.scaling import FunctionLoad, Prices

__all__ = ["SIZES", "Objective", "Size", "SizeTable", "class_name", "sizes"]

_KEPT = 4096  # tables kept by a `SizeTable`; a scaler has fewer models and objectives


@dataclass(frozen=True, slots=True)
class Objective:
    """What an instance must hold.

    Attributes:
        slo_s: Latency objective of a request, the tightest of all applications.
        percentile: Share of requests that must meet it.
        max_batch: Maximum number of requests in a batch.
        offset: Part by which predicted execution times are raised, for what prediction misses.
        rounded: Whether rates are in whole batches per second, as printed.
    """

    slo_s: float
    percentile: float = 0.99
    max_batch: int = 32
    offset: float = 0.1
    rounded: bool = False

    @classmethod
    def of(cls, load: FunctionLoad, offset: float, *, rounded: bool = False) -> Objective:
        """The tightest objective of a function's applications.

        Args:
            load: The function; where its model's error is known, that is the offset.
            offset: As the attribute, while nothing is known.
            rounded: As the attribute.
        """
        known = offset if load.error is None else load.error
        return cls(load.tightest_s, load.percentile, load.max_batch, known, rounded)


class _Row(NamedTuple):
    """A configuration that a model knows, with what does not depend on the objective's time."""

    batch: int
    cpu: float
    gpu: float
    predicted_s: float
    resources: Resources
    units: float


def sizes(
    model: LatencyModel, objective: Objective, prices: Prices | None = None
) -> tuple[Size, ...]:
    """Every configuration of the model that meets the objective, in the model's order."""
    rows = _rows(model, objective.max_batch, objective.percentile)
    return tuple(_sizes(rows, model.load_s, objective, prices))


def _rows(model: LatencyModel, max_batch: int, percentile: float) -> Iterator[_Row]:
    for batch, cpu, gpu in model.configurations(max_batch):
        predicted_s = model.predict(batch, cpu, gpu, percentile)
        # Written so that what is not a number meets no objective. A plan wants some of a core.
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
    """Eq. 1: the least and the most requests per second, None where the objective is not met."""
    if exec_s > (objective.slo_s if batch == 1 else objective.slo_s / 2):
        return None
    if not objective.rounded:
        return 0.0 if batch == 1 else batch / (objective.slo_s - exec_s), batch / exec_s
    low = 1 if batch == 1 else math.ceil(1 / (objective.slo_s - exec_s))
    high = math.floor(1 / exec_s)
    return (float(low * batch), float(high * batch)) if high else None


class SizeTable:
    """Sizes by model, objective and prices, each computed once.

    What is predicted of a model serves all objectives that have its percentile.
    """

    def __init__(self) -> None:
        self._rows: Recent[tuple[_Row, ...]] = Recent(_KEPT)
        self._known: Recent[tuple[Size, ...]] = Recent(_KEPT)

    def of(
        self, model: LatencyModel, objective: Objective, prices: Prices | None = None
    ) -> tuple[Size, ...]:
        """As `sizes`; the very same tuple every time."""
        make = partial(self._sizes, model, objective, prices)
        return self._known.of((Same(model), objective, prices), make)

    def offered(self, load: FunctionLoad, objective: Objective, prices: Prices) -> tuple[Size, ...]:
        """The sizes for all applications of a function: of variants, those accurate enough."""
        model = load.model
        if not isinstance(model, VariantSet):
            return self.of(model, objective, prices)
        least = max([app.accuracy for app in load.apps], default=0.0)
        make = partial(self._of_variants, model, objective, prices, least)
        return self._known.of((Same(model), objective, prices, least), make)

    def _sizes(
        self, model: LatencyModel, objective: Objective, prices: Prices | None
    ) -> tuple[Size, ...]:
        asked = (objective.max_batch, objective.percentile)
        rows = self._rows.of((Same(model), *asked), lambda: tuple(_rows(model, *asked)))
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


SIZES = SizeTable()  # what the guard offers and what policies look at are mostly the same sizes
