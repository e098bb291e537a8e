"""Latency models evaluated on arrays give the same results as one by one."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from carpool.latency import Configuration, LatencyModel
from carpool.latency.arrays import Sizes, configurations, occupied, predicted
from carpool.latency.coefficients import Coefficients
from carpool.latency.linear import Linear
from carpool.latency.table import Table
from tests.carpool.test_latency_coefficients import GPU, MODEL

TABLE = Table(
    {
        Configuration(batch, cores, share): (0.02 + 0.01 * batch) / (cores + share / 10)
        for batch in (1, 4)
        for cores in (1.0, 2.0)
        for share in (0.0, 20.0)
    },
    memory_mb=300.0,
)


@dataclass(frozen=True, slots=True)
class Doubled(Coefficients):
    """Coefficients model with twice the latency of its formulas."""

    def predict(self, batch: int, cpu: float, gpu: float, quantile: float = 0.5) -> float | None:
        found = Coefficients.predict(self, batch, cpu, gpu, quantile)
        return None if found is None else 2 * found


MODELS = [
    pytest.param(MODEL, id="coefficients"),
    pytest.param(replace(MODEL, gpu=None), id="on cores"),
    pytest.param(replace(MODEL, cpu=None), id="on a GPU"),
    pytest.param(
        replace(MODEL, gpu=replace(GPU, batch_thresholds=(4, 9), max_batch=20, max_margin=1.0)),
        id="thresholds",
    ),
    pytest.param(Doubled(MODEL.cpu, MODEL.gpu), id="a custom model"),
    pytest.param(Linear(0.05, 0.01, memory_mb=9.0), id="linear"),
    pytest.param(TABLE, id="table"),
]
# Known and unknown, and at the edges of what is.
BATCHES = (0, 1, 2, 3, 5, 9, 10, 20, 21, 32, 33)
CORES = (0.0, 0.04, 0.05, 1 / 3, 1.0, 1.5, 16.0, 16.05)
SHARES = (-1.0, 0.0, 1.0, 100 / 24, 100 * 23 / 24, 100.0, 101.0)
QUANTILES = np.array([0.001, 0.3, 0.5, 0.9, 0.99, 0.99999])


@pytest.mark.parametrize("model", MODELS)
def test_array_predictions_equal_single_predictions(model: LatencyModel) -> None:
    """The predictions agree to twelve digits at every quantile, and are NaN if infeasible."""
    asked = list(itertools.product(BATCHES, CORES, SHARES))
    sizes = Sizes(*np.array(asked, dtype=float).T[:, :, None])
    found = predicted(model, sizes, QUANTILES)
    expected = [[model.predict(*size, at) for at in QUANTILES.tolist()] for size in asked]
    numbers = [[math.nan if at is None else at for at in row] for row in expected]
    np.testing.assert_allclose(found, numbers, rtol=1e-12)


@pytest.mark.parametrize("model", MODELS)
def test_all_configurations_and_their_resources_are_returned(model: LatencyModel) -> None:
    """All configurations and their resources are returned in order."""
    expected = list(model.configurations(10))
    sizes = configurations(model, 10)
    assert expected == list(zip(*(column.tolist() for column in sizes), strict=True))
    found = zip(*(column.tolist() for column in occupied(model, sizes)), strict=True)
    assert [model.resources(*size) for size in expected] == list(found)


def test_a_model_without_configurations() -> None:
    """A model without configurations gives empty arrays."""
    sizes = configurations(replace(MODEL, cpu=None), 0)
    assert [0, 0, 0] == [len(column) for column in sizes]
    assert 0 == len(predicted(MODEL, sizes, np.array([0.5])))
