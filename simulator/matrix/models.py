"""Models of the matrix: tables that favour CPUs or GPUs, a linear model, and variants.

They are synthetic, with plausible sizes and shapes but not measured; `measured_models` reads
measured ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from carpool.errors import ConfigError, Problem
from carpool.latency import Configuration
from carpool.latency.linear import Linear
from carpool.latency.table import Table, read_table
from carpool.variants.variant import Variant
from carpool.variants.variant_set import VariantSet

if TYPE_CHECKING:
    from pathlib import Path

    from carpool.latency import LatencyModel

__all__ = ["LOAD_S", "MODELS", "OBJECTIVES", "Model", "measured_models"]

LOAD_S = 2.0
OBJECTIVES = {"tight": 2.0, "medium": 4.0, "loose": 10.0}  # multiples of `Model.single_s`
_CORES = (1.0, 2.0, 4.0, 8.0)
_SHARES = (0.0, 10.0, 20.0, 50.0)
_BATCHES = (1, 2, 4, 8, 16, 32)
_BATCH_PER_CORE = 4
_MEASURED_RPS = 40.0


@dataclass(frozen=True)
class Model:
    """A model with its load and accuracy requirement.

    Attributes:
        latency: Latency model.
        single_s: Latency of one request on a typical instance; objectives are multiples of it.
        rate_rps: Mean arrival rate.
        accuracy: Minimum accuracy requested, for models with variants.
    """

    latency: LatencyModel
    single_s: float
    rate_rps: float
    accuracy: float = 0.0


class _Times(NamedTuple):
    """Milliseconds: fixed and per item on two cores; with a GPU fixed, host and GPU."""

    cores_fixed: float
    cores_item: float
    gpu_fixed: float
    gpu_host: float
    gpu_item: float

    def of(self, batch: int, cores: float, share: float) -> float:
        """Return the time of a batch on an instance."""
        if not share:
            return self.cores_fixed + self.cores_item * batch * math.pow(2 / cores, 0.8)
        return self.gpu_fixed + batch * (
            self.gpu_host / cores + self.gpu_item * math.pow(10 / share, 0.2)
        )


def _table(times: _Times) -> Table:
    return Table(
        {
            Configuration(batch, cores, share): times.of(batch, cores, share) / 1000
            for cores in _CORES
            for share in _SHARES
            for batch in _BATCHES
            if batch <= _BATCH_PER_CORE * cores
        },
        load_s=LOAD_S,
    )


def _variants() -> VariantSet:
    """Return two architectures on CPU and on GPU each, one of which is not accurate enough."""
    shapes = (
        ("small-cores", 0.70, 2.0, 0.0, 4.0, 6.0),
        ("middle-cores", 0.78, 2.0, 0.0, 8.0, 22.0),
        ("middle-gpu", 0.78, 1.0, 10.0, 12.0, 4.0),
        ("large-cores", 0.82, 4.0, 0.0, 10.0, 30.0),
        ("large-gpu", 0.82, 1.0, 20.0, 18.0, 6.0),
    )
    return VariantSet(
        tuple(
            Variant(
                name,
                accuracy,
                {batch: (fixed + item * batch) / 1000 for batch in _BATCHES},
                cpu=cpu,
                gpu=gpu,
                load_s=LOAD_S,
            )
            for name, accuracy, cpu, gpu, fixed, item in shapes
        )
    )


MODELS: dict[str, Model] = {
    "cores": Model(_table(_Times(4, 3, 9, 2, 1)), 0.010, 80.0),
    "gpu": Model(_table(_Times(20, 130, 40, 12, 10)), 0.055, 40.0),
    "line": Model(Linear(0.030, 0.006, cpu=2.0, load_s=LOAD_S), 0.036, 50.0),
    "variants": Model(_variants(), 0.030, 50.0, 0.75),
}


def measured_models(folder: Path) -> dict[str, Model]:
    """Return the tables ``*.csv`` of a folder, by name.

    Raises:
        ConfigError: what is wrong with one.
    """
    return {path.stem: _measured(path) for path in sorted(folder.glob("*.csv"))}


def _measured(path: Path) -> Model:
    table = read_table(path, load_s=LOAD_S)
    singles = sorted(seconds for row, seconds in table.rows.items() if row.batch == 1)
    if not singles:
        expected = "a row with batch 1, because objectives are multiples of a single request's time"
        raise ConfigError([Problem(str(path), "no batch of 1", expected)])
    single_s = singles[len(singles) // 2]
    return Model(table, single_s, max(_MEASURED_RPS, 2 / single_s))
