"""The variants of one application as a latency model: the kind that knows several ways to answer.

A planner that asks for no variant is answered for one of them, the default; which variant a class
of a plan has, `model_of` looks up.
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
        variants: At least one, with their own names.
        default: The one that stands for all; empty: the most accurate, of equals the quickest.

    Raises:
        ConfigError: none, two of one name, or a default that is not among them.
    """

    variants: tuple[Variant, ...]
    default: str = ""

    def __post_init__(self) -> None:
        """Refuse what nobody could choose from."""
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
        """The latencies of a variant; None: it is not one of these."""
        return self._tables.get(name)

    @property
    def load_s(self) -> float:
        """As `LatencyModel.load_s`."""
        return self._chosen.load_s

    def predict(self, batch: int, cpu: float, gpu: float, quantile: float = 0.5) -> float | None:
        """As `LatencyModel.predict`."""
        return self._chosen.predict(batch, cpu, gpu, quantile)

    def resources(self, batch: int, cpu: float, gpu: float) -> Resources:
        """As `LatencyModel.resources`."""
        return self._chosen.resources(batch, cpu, gpu)

    def configurations(self, max_batch: int) -> Iterator[Configuration]:
        """As `LatencyModel.configurations`."""
        return self._chosen.configurations(max_batch)

    @property
    def best(self) -> Variant:
        """The most accurate, of equals the quickest."""
        return max(self.variants, key=lambda v: (v.accuracy, v.saturation_rps))

    @cached_property
    def _tables(self) -> Mapping[str, Table]:
        return {variant.name: variant.table() for variant in self.variants}

    @cached_property
    def _chosen(self) -> Table:
        return self._tables[self.default or self.best.name]


def model_of(model: LatencyModel, variant: str) -> LatencyModel:
    """How long batches take on instances with that variant; on any if there are no variants."""
    found = model.of(variant) if isinstance(model, VariantSet) and variant else None
    return found or model
