"""Random latency models for the suite that tests scaling policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.latency import Configuration
from carpool.latency.linear import Linear
from carpool.latency.table import Table
from carpool.variants.variant import Variant
from carpool.variants.variant_set import VariantSet

if TYPE_CHECKING:
    import random

    from carpool.latency import LatencyModel

__all__ = ["random_model"]


def random_model(draw: random.Random) -> LatencyModel:
    """Return a random linear model, table, or set of variants."""
    base_s, item_s = draw.choice((0.001, 0.02, 0.15)), draw.choice((0.0005, 0.01))
    memory_mb = draw.choice((0.0, 700.0))
    if draw.random() < 0.2:  # noqa: PLR2004  a fifth
        return _variants(base_s, item_s, memory_mb)
    if draw.random() < 0.3:  # noqa: PLR2004  nearly a third
        return Linear(base_s, item_s, cpu=draw.choice((0.5, 2.0)), memory_mb=memory_mb)
    rows = {
        Configuration(batch, cores, share): base_s
        + item_s * batch * (2 / cores) ** 0.8 / (1 + share / 10)
        for cores in (2.0, 4.0)
        for share in (0.0, 10.0, 50.0)
        for batch in (1, 2, 4, 8)
    }
    return Table(rows, memory_mb=memory_mb)


def _variants(base_s: float, item_s: float, memory_mb: float) -> LatencyModel:
    """Return three variants: small and large ones on CPUs, and one on a GPU."""
    shapes = (
        ("small", 0.7, 1.0, 0.0, 0.5),
        ("large", 0.8, 4.0, 0.0, 1.0),
        ("gpu", 0.8, 1.0, 25.0, 0.2),
    )
    return VariantSet(
        tuple(
            Variant(
                name,
                accuracy,
                {batch: times * (base_s + item_s * batch) for batch in (1, 4, 8)},
                cpu=cpu,
                gpu=gpu,
                memory_mb=memory_mb,
            )
            for name, accuracy, cpu, gpu, times in shapes
        )
    )
