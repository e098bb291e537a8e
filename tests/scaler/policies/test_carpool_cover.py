"""The cheapest instances for a rate, against all combinations."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

import pytest

from carpool.latency import Resources
from carpool.scaling import Size
from scaler.policies.carpool.cover import Menu
from scaler.policies.carpool.options import Option
from tests.effort import scaled

if TYPE_CHECKING:
    from collections.abc import Sequence

SLO_S, MISS = 0.2, 0.01


def menu(*shapes: tuple[int, float, float], price: Sequence[float] = ()) -> Menu:
    """Of batches, cores and seconds of a full batch; a core costs one."""
    options = [
        Option(
            Size(batch, cpu, 0.0, resources=Resources(cpu), exec_s=exec_s, rate_rps=batch / exec_s),
            exec_s / (1 + 0.2 * (batch - 1)),
        )
        for batch, cpu, exec_s in shapes
    ]
    return Menu.of(options, price or [cpu for _, cpu, _ in shapes], SLO_S, MISS)


def cheapest(known: Menu, rate_rps: float, most: int) -> float:
    """By trying all numbers of all options."""
    found = math.inf
    for counts in product(range(most + 1), repeat=len(known.options)):
        if not 0 < sum(counts) <= most:
            continue
        sizes = [option.size for option in known.options]
        if known.taken_by(Counter(dict(zip(sizes, counts, strict=True)))) >= rate_rps:
            price = sum(n * p for n, p in zip(counts, known.price_per_s, strict=True))
            found = min(found, float(price))
    return found


def test_nothing_of_two_sizes_is_cheaper() -> None:
    """Two sizes, rates at random."""
    known = menu((1, 1.0, 0.08), (4, 3.0, 0.07))
    draw = random.Random(1)
    for _ in range(scaled(100)):
        rate_rps = draw.uniform(0.1, 150.0)
        cover = known.cover(rate_rps, range(len(known.options)))
        assert cover is not None
        assert known.taken_by(cover.instances) >= rate_rps * (1 - 1e-6)
        assert cover.price_per_s <= cheapest(known, rate_rps, 10) + 1e-9


def test_two_sizes_save() -> None:
    """A little more than a large instance takes is taken by a small one beside it."""
    known = menu((1, 1.0, 0.08), (8, 4.0, 0.09))
    large = max(known.options, key=lambda option: option.size.cpu).size
    rate_rps = 1.05 * known.taken_by({large: 1})
    cover = known.cover(rate_rps, range(len(known.options)))
    assert cover is not None
    assert len(cover.instances) == 2
    assert cover.price_per_s < 8.0


def test_what_another_beats_is_left_out() -> None:
    """A size as quick for twice the price is no option; at another price it is."""
    shapes = ((1, 1.0, 0.08), (1, 2.0, 0.08))
    assert [option.size.cpu for option in menu(*shapes).options] == [1.0]
    assert len(menu(*shapes, price=(1.0, 0.5)).options) == 1


def test_no_more_than_may_be() -> None:
    """Where so few cannot take it nothing is a cover, and what comes nearest is no more."""
    known = menu((1, 1.0, 0.08), (4, 3.0, 0.07))
    assert known.cover(1000.0, [0, 1], limit=3) is None
    assert known.nearly(1000.0, limit=3).instances.total() == 3


@pytest.mark.parametrize("rate_rps", [0.0, 1e-12])
def test_nothing_is_taken_by_one(rate_rps: float) -> None:
    """The cheapest that would answer in time alone."""
    cover = menu((1, 1.0, 0.08), (1, 0.5, 0.3)).cover(rate_rps, [0])
    assert cover is not None
    assert cover.instances.total() == 1
    ((size, _),) = cover.instances.items()
    assert size.cpu == 1.0  # the other one is never in time
