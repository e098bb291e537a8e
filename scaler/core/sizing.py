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
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler.core.placement import resource_units

if TYPE_CHECKING:
    from carpool.latency import Configuration, LatencyModel, Resources
    from carpool.plan import InstanceClass
    from scaler.core.snapshot import FunctionView

__all__ = ["Objective", "Size", "SizeTable", "class_name", "matching", "sizes"]

_KEPT = 4096  # tables kept by a `SizeTable`; a scaler has fewer models and objectives


@dataclass(frozen=True, slots=True)
class Objective:
    """What an instance must hold.

    Attributes:
        slo_s: Latency objective of a request, the tightest of all applications.
        percentile: Share of requests that must meet it.
        max_batch: Most requests in one batch.
        offset: Part by which predicted execution times are raised, for what prediction misses.
        rounded: Whether rates are in whole batches per second, as printed.
    """

    slo_s: float
    percentile: float = 0.99
    max_batch: int = 32
    offset: float = 0.1
    rounded: bool = False

    @classmethod
    def of(cls, view: FunctionView, offset: float, *, rounded: bool = False) -> Objective:
        """The objective of a function and everybody who calls it.

        Args:
            view: The function; where its model's error is known, that is the offset.
            offset: As the attribute, while nothing is known.
            rounded: As the attribute.
        """
        slo_s = min([app.slo_s for app in view.apps], default=view.slo_s)
        known = offset if view.error is None else view.error
        return cls(slo_s, view.percentile, view.max_batch, known, rounded)


@dataclass(frozen=True, slots=True, eq=False)
class Size:
    """One size of instance; two are the same only if they are one object.

    Attributes:
        batch: Requests in a full batch.
        cpu, gpu: Its cores and percent of a GPU, as the model knows it.
        resources: What an instance occupies.
        exec_s: Seconds of a full batch at the objective's percentile, with the offset.
        rate_low: Requests per second below which batches are not full in time.
        rate_high: Requests per second that it can take.
        units: CPU and GPU in `resource_units`.
        variant: Which variant of the model; empty: it has none.
    """

    batch: int
    cpu: float
    gpu: float
    resources: Resources
    exec_s: float
    rate_low: float
    rate_high: float
    units: float
    variant: str = ""

    @property
    def efficiency(self) -> float:
        """Requests per second and resource unit."""
        return self.rate_high / self.units

    @property
    def name(self) -> str:
        """The name of a plan's class of this size."""
        if self.variant:
            return f"{self.variant}-b{self.batch}"
        return class_name(self.batch, self.cpu, self.gpu)


def class_name(batch: int, cpu: float, gpu: float) -> str:
    """Batch, cores and GPU percent, rounded, as OpenFaaS admits: ``b4-c2-g10``, ``b1-c0p5``."""
    amounts = [("b", float(batch)), ("c", cpu), *([("g", gpu)] if gpu else [])]
    return "-".join(f"{word}{amount:.4g}".replace(".", "p") for word, amount in amounts)


def sizes(model: LatencyModel, objective: Objective) -> tuple[Size, ...]:
    """Every configuration of the model that meets the objective, in the model's order."""
    found = [
        _size(model, configuration, objective)
        for configuration in model.configurations(objective.max_batch)
    ]
    return tuple(size for size in found if size)


def _size(model: LatencyModel, configuration: Configuration, objective: Objective) -> Size | None:
    batch, cpu, gpu = configuration
    predicted_s = model.predict(batch, cpu, gpu, objective.percentile)
    # Written so that what is not a number meets no objective. A plan wants some of a core.
    if predicted_s is None or not (0 < predicted_s < math.inf and cpu > 0):
        return None
    exec_s = predicted_s * (1 + objective.offset)
    window = _window(batch, exec_s, objective)
    if window is None:
        return None
    resources = model.resources(batch, cpu, gpu)
    units = resource_units(resources.cpu, resources.gpu)
    held = 0 < units < math.inf
    return Size(batch, cpu, gpu, resources, exec_s, *window, units) if held else None


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
    """Sizes by model and objective, each computed once."""

    def __init__(self) -> None:
        # A model need not be hashable. It is kept beside its sizes, so no other gets its id.
        self._known: dict[tuple[int, Objective], tuple[LatencyModel, tuple[Size, ...]]] = {}

    def of(self, model: LatencyModel, objective: Objective) -> tuple[Size, ...]:
        """As `sizes`; the very same tuple every time."""
        key = (id(model), objective)
        if key not in self._known:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[key] = (model, sizes(model, objective))
        return self._known[key][1]


def matching(candidates: tuple[Size, ...], wanted: InstanceClass) -> Size | None:
    """The size that a plan's class has, if it is among the candidates."""
    key = (wanted.variant, wanted.batch_size, wanted.cpu, wanted.gpu)
    return next((s for s in candidates if (s.variant, s.batch, s.cpu, s.gpu) == key), None)
