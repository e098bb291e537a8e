"""Divisions by exact costs: the best one is at most as expensive as any other, in order or not."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from scaler.planning.cost import billing
from scaler.policies.harmonybatch.adjacent_groups import AdjacentGroups
from scaler.policies.harmonybatch.offers import Offers, offers
from scaler.policies.harmonybatch.settling import Member, Settling
from tests.scaler.vgg19 import PRICES, members, vgg19

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MISS = 0.0075
# What a group more has to save, and how near windows and configurations are sought.
DEARER = 3e-3


@pytest.fixture(scope="module")
def known() -> tuple[Offers, Settling]:
    """Return offers and settling for VGG-19 on Function Compute."""
    model, rule = vgg19(), billing(PRICES)
    return offers(model, rule, 32, MISS), Settling(model, rule, MISS, 1e-3)


def drawn(seed: int, count: int) -> list[Member]:
    """Return applications with objectives from 0.3 to 1.2 s and rates from 0.1 to 20 per second."""
    draw = np.random.default_rng(seed)
    rates = 10 ** draw.uniform(-1, 1.3, count)
    return members(sorted(draw.uniform(0.3, 1.2, count).tolist()), rates.tolist())


class Money:
    """Costs of groups per second by the exact law, each computed once."""

    def __init__(self, known: tuple[Offers, Settling]) -> None:
        self._known = known
        self._seen: dict[tuple[str, ...], float] = {}

    def of(self, group: Sequence[Member]) -> float:
        names = tuple(app for member in group for app in member.apps)
        if names not in self._seen:
            settled = AdjacentGroups(group, *self._known).served((0, len(group) - 1))
            alone = len(settled) == 1 and len(settled[0].members) == len(group)
            self._seen[names] = settled[0].cost * settled[0].rate_rps if alone else math.inf
        return self._seen[names]

    def found(self, apps: Sequence[Member]) -> float:
        """Return the cost of the division that is found."""
        cuts = AdjacentGroups(apps, *self._known).divided()
        return sum(self.of(apps[first : last + 1]) for first, last in cuts)


@pytest.mark.parametrize("seed", range(12))
def test_no_division_into_neighbours_is_cheaper(known: tuple[Offers, Settling], seed: int) -> None:
    """No division of 6 to 9 applications into groups of neighbours is cheaper."""
    apps, money = drawn(seed, 6 + seed % 4), Money(known)
    best = [0.0]
    for end in range(1, len(apps) + 1):
        best.append(min(best[begin] + money.of(apps[begin:end]) for begin in range(end)))
    assert money.found(apps) <= best[-1] * (1 + DEARER)


@pytest.mark.parametrize("seed", range(6))
def test_no_partition_is_cheaper(known: tuple[Offers, Settling], seed: int) -> None:
    """None of the 52 partitions of five applications is cheaper."""
    apps, money = drawn(100 + seed, 5), Money(known)
    every = (sum(map(money.of, parts)) for parts in partitions(apps))
    assert money.found(apps) <= min(every) * (1 + DEARER)


def partitions(apps: list[Member]) -> Iterator[list[list[Member]]]:
    """Yield all partitions into sets, each ordered by objective."""
    for labels in itertools.product(range(len(apps)), repeat=len(apps)):
        if all(label <= max(labels[:at], default=-1) + 1 for at, label in enumerate(labels)):
            yield [
                [app for app, own in zip(apps, labels, strict=True) if own == label]
                for label in range(max(labels) + 1)
            ]
