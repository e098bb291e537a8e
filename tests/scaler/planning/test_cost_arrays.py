"""Billing rules for arrays agree with those for single sizes."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from carpool.latency import Resources
from carpool.latency.arrays import Occupied
from scaler.planning.cost import PayPerUse, Prices, billing

PRICES = Prices(
    cpu_core_s=9e-5,
    memory_gb_s=9e-6,
    gpu_gb_s=1.1e-4,
    gpu_percent_s=7e-6,
    call=9e-7,
    cpu_billing_granularity_s=0.1,
)
SIZES = [
    Resources(cpu, gpu, memory_mb, gpu_gb)
    for cpu, memory_mb in itertools.product((0.05, 1.0, 16.0), (0.0, 512.0, 5000.0))
    for gpu, gpu_gb in ((0.0, 0.0), (10.0, 0.0), (12.5, 3.0))
]
SECONDS = np.array([[0.01], [0.1], [0.3], [1.0], [1.0000001], [7.3]])


class Double(PayPerUse):
    """A billing rule with twice the price."""

    def execution(self, size: Resources, exec_s: float) -> float:
        """See `BillingRule.execution`."""
        return 2 * super().execution(size, exec_s)


NAMES = ["pay-per-use", "function-compute", "reserved", f"{__name__}:Double"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gpu_step_s", [0.0, 0.25])
def test_array_costs_equal_single_costs(name: str, gpu_step_s: float) -> None:
    """Executions and lifetimes agree for every size, time and rule, also a custom one."""
    prices = dataclasses.replace(PRICES, billing=name, gpu_billing_granularity_s=gpu_step_s)
    rule = billing(prices)
    sizes = Occupied(*np.array(SIZES).T)
    expected = [[rule.execution(size, at) for size in SIZES] for at in SECONDS[:, 0].tolist()]
    np.testing.assert_allclose(rule.executions(sizes, SECONDS), expected, rtol=1e-12)
    lives = [rule.lifetime(size, 1.0) for size in SIZES]
    np.testing.assert_allclose(rule.lifetimes(sizes), lives, rtol=1e-12)
