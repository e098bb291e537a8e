"""The lower bound on the cost of divisions: near the cost found, and above one published cost."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.division_bound import least_cost
from scaler.planning.cost import billing
from scaler.policies.harmonybatch.provisioning import Provisioner
from tests.scaler.vgg19 import CASES, PRICES, members, vgg19

RULE = billing(PRICES)
MISS = 0.01


def least_and_found(slos_s: tuple[float, ...], rates_rps: tuple[float, ...]) -> tuple[float, float]:
    """Return the bound on the cost per request, and the cost of Carpool's plan."""
    apps, model, rate = members(slos_s, rates_rps), vgg19(), sum(rates_rps)
    made = Provisioner(model, RULE, 32, MISS, 1e-3)
    made.groups(apps, "optimal")
    groups = made.groups(apps, "optimal")  # the second plan is sought more closely
    found = sum(group.cost * group.rate_rps for group in groups)
    return least_cost(apps, model, RULE, 32, MISS) / rate, found / rate


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_bound_is_close_to_and_at_most_found_cost(seed: int) -> None:
    """The bound is at most the cost found and at least 97 % of it, for random applications."""
    draw = np.random.default_rng(seed)
    count = 1 + seed % 3
    slos = tuple(sorted(draw.uniform(0.15, 1.2, count).tolist()))
    least, found = least_and_found(slos, tuple((10 ** draw.uniform(0, 1.3, count)).tolist()))
    assert 0.97 * found <= least <= found


@pytest.mark.slow
def test_a_published_cost_is_out_of_reach() -> None:
    """The published cost for four applications is below the bound, as it takes batches for full.

    The one for eight applications is too (``python -m benchmarks grouping --bound``, minutes).
    """
    case = CASES["four"]
    least, found = least_and_found(tuple(case.slos_s), tuple(case.rates_rps))
    assert 2.854e-5 * 1.04 < least <= found
