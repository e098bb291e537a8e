"""The variants of one application as a latency model.

A planner that asks for no variant gets the results of one of them, the default; `model_of` returns
the model of the variant that a class of a plan has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from carpool.validation.problems import Problems, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from carpool.latency.model import Configuration, LatencyModel, Resources
    from carpool.latency.table import Table
    from carpool.variants.variant import Variant

__all__ = ["VariantSet", "model_of"]


@dataclass(frozen=True)
class VariantSet:
    """Variants of an application.

    Attributes:
        variants: At least one, with unique names.
        default: Variant that represents all; if empty, the most accurate, and of several the
            fastest.

    Raises:
        ConfigError: there are none, two have one name, or the default is not among them.
    """

    variants: tuple[Variant, ...]
    default: str = ""

    def __post_init__(self) -> None:
        """Check that there are variants, with unique names, and a known default."""
        problems = Problems()
        names = [variant.name for variant in self.variants]
        if not names:
            problems.add("variants", "[]", "at least one variant")
        for index, name in enumerate(names):
            if name in names[:index]:
                problems.add(f"variants[{index}].name", name, "another name than those before")
        if self.default and self.default not in names:
            expected = f"one of {', '.join(names)}"
            problems.add("default", self.default, expected, nearest(self.default, names))
        problems.raise_if_any()

    def of(self, name: str) -> Table | None:
        """Return the latencies of a variant; None if it is unknown."""
        return self._tables.get(name)

    @property
    def load_s(self) -> float:
        """Seconds to load an instance of the default variant."""
        return self._chosen.load_s

    def predict(self, batch: int, cpu: float, gpu: float, quantile: float = 0.5) -> float | None:
        """Implement `LatencyModel.predict` for the default variant."""
        return self._chosen.predict(batch, cpu, gpu, quantile)

    def resources(self, batch: int, cpu: float, gpu: float) -> Resources:
        """Implement `LatencyModel.resources` for the default variant."""
        return self._chosen.resources(batch, cpu, gpu)

    def configurations(self, max_batch: int) -> Iterator[Configuration]:
        """Implement `LatencyModel.configurations` for the default variant."""
        return self._chosen.configurations(max_batch)

    @property
    def best(self) -> Variant:
        """Most accurate variant, and of several the fastest."""
        return max(self.variants, key=lambda v: (v.accuracy, v.saturation_rps))

    @cached_property
    def _tables(self) -> Mapping[str, Table]:
        return {variant.name: variant.table() for variant in self.variants}

    @cached_property
    def _chosen(self) -> Table:
        return self._tables[self.default or self.best.name]


def model_of(model: LatencyModel, variant: str) -> LatencyModel:
    """Return the latency model of ``variant``, or ``model`` itself if it has no such variant."""
    own = model.of(variant) if isinstance(model, VariantSet) and variant else None
    return own or model
