"""The price list of groups: what it omits is never cheapest, and mean batch sizes are right."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scaler.planning.cost import billing
from scaler.policies.harmonybatch.mean_sizes import MeanSizes
from scaler.policies.harmonybatch.offers import Offers, offers
from scaler.policies.harmonybatch.pooling import Pooled
from tests.scaler.vgg19 import PRICES, vgg19


@pytest.fixture(scope="module")
def tariff() -> Offers:
    """Return the offers for VGG-19 on Function Compute."""
    return offers(vgg19(), billing(PRICES), 32, 0.0075)


def drawn(tariff: Offers, count: int) -> Pooled:
    """Return random groups, the first with the tightest possible objective."""
    draw = np.random.default_rng(5)
    slos = np.append(tariff.fastest_s, draw.uniform(0.06, 2.0, count - 1))
    spread = draw.uniform(0.0, 0.3, count)
    return Pooled(10 ** draw.uniform(-1, 2.5, count), slos + spread, spread, slos)


def test_group_cost_does_not_depend_on_other_groups(tariff: Offers) -> None:
    """The cost of a group is the same alone as beside a group whose objective is tight."""
    groups = drawn(tariff, 60)
    costs, places = tariff.cheapest(groups)
    for number in range(60):
        alone = Pooled(*(column[number : number + 1] for column in groups))
        assert (costs[number], places[number]) == tuple(each[0] for each in tariff.cheapest(alone))
    priced = [tariff.costs(Pooled(*(column[:end] for column in groups))).shape for end in (1, 60)]
    assert [(1, len(tariff)), (60, len(tariff))] == priced


def test_few_offers_are_priced_for_long_objectives(tariff: Offers) -> None:
    """For long objectives few offers are priced, as most cost more than requests on cores."""
    at_ease = Pooled(*(np.array([value]) for value in (20.0, 0.8, 0.1, 0.7)))
    assert tariff.costs(at_ease).shape[1] < len(tariff) / 4


@pytest.mark.parametrize("members", [0.0, 0.3, 4.0, 11.0, 40.0])
def test_mean_sizes_to_three_digits(members: float) -> None:
    """Mean sizes are ``1 + E[min(Poisson, b - 1)]`` for every largest batch, to three digits."""
    sizes = MeanSizes(16)
    largest = np.arange(1.0, 17)
    shares = [math.exp(-members) * members**n / math.factorial(n) for n in range(100)]
    exact = [1 + sum(p * min(n, b - 1) for n, p in enumerate(shares)) for b in range(1, 17)]
    assert pytest.approx(exact, rel=1e-3) == sizes.at(sizes.rows(largest), np.full(16, members))
