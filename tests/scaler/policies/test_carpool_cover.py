"""The cheapest instances for a rate, compared with all combinations."""

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
    """Return a menu of sizes given by batch, cores and seconds of a full batch; a core costs 1."""
    options = [
        Option(
            Size(batch, cpu, 0.0, resources=Resources(cpu), exec_s=exec_s, rate_rps=batch / exec_s),
            exec_s / (1 + 0.2 * (batch - 1)),
        )
        for batch, cpu, exec_s in shapes
    ]
    return Menu.of(options, price or [cpu for _, cpu, _ in shapes], SLO_S, MISS)


def cheapest(known: Menu, rate_rps: float, most: int) -> float:
    """Return the lowest price of all combinations of up to ``most`` instances."""
    found = math.inf
    for counts in product(range(most + 1), repeat=len(known.options)):
        if not 0 < sum(counts) <= most:
            continue
        sizes = [option.size for option in known.options]
        if known.taken_by(Counter(dict(zip(sizes, counts, strict=True)))) >= rate_rps:
            price = sum(n * p for n, p in zip(counts, known.price_per_s, strict=True))
            found = min(found, float(price))
    return found


def test_no_combination_of_two_sizes_is_cheaper() -> None:
    """For two sizes and random rates, no combination is cheaper than the cover."""
    known = menu((1, 1.0, 0.08), (4, 3.0, 0.07))
    draw = random.Random(1)
    for _ in range(scaled(100)):
        rate_rps = draw.uniform(0.1, 150.0)
        cover = known.cover(rate_rps, range(len(known.options)))
        assert cover is not None
        assert known.taken_by(cover.instances) >= rate_rps * (1 - 1e-6)
        assert cover.price_per_s <= cheapest(known, rate_rps, 10) + 1e-9


def test_small_instance_covers_remaining_rate() -> None:
    """A rate slightly above the capacity of a large instance adds a small one."""
    known = menu((1, 1.0, 0.08), (8, 4.0, 0.09))
    large = max(known.options, key=lambda option: option.size.cpu).size
    rate_rps = 1.05 * known.taken_by({large: 1})
    cover = known.cover(rate_rps, range(len(known.options)))
    assert cover is not None
    assert len(cover.instances) == 2
    assert cover.price_per_s < 8.0


def test_dominated_size_is_dropped() -> None:
    """A size that is as fast as another and more expensive is left out."""
    shapes = ((1, 1.0, 0.08), (1, 2.0, 0.08))
    assert [option.size.cpu for option in menu(*shapes).options] == [1.0]
    assert len(menu(*shapes, price=(1.0, 0.5)).options) == 1


def test_cover_respects_instance_limit() -> None:
    """If the limit is too low there is no cover, and the nearest set stays within the limit."""
    known = menu((1, 1.0, 0.08), (4, 3.0, 0.07))
    assert known.cover(1000.0, [0, 1], limit=3) is None
    assert known.nearly(1000.0, limit=3).instances.total() == 3


@pytest.mark.parametrize("rate_rps", [0.0, 1e-12])
def test_zero_rate_is_covered_by_one_instance(rate_rps: float) -> None:
    """A rate of about 0 is covered by one instance, the cheapest that is in time."""
    cover = menu((1, 1.0, 0.08), (1, 0.5, 0.3)).cover(rate_rps, [0])
    assert cover is not None
    assert cover.instances.total() == 1
    ((size, _),) = cover.instances.items()
    assert size.cpu == 1.0  # the other one is never in time


def test_fewest_of_equally_capable_instances_are_taken() -> None:
    """Where one more instance takes no more, as far as is known, the cover has one less."""
    known = menu((1, 1.0, 0.08))
    known.taken_rps[0, 1:4] = 50.0  # two take as much as the law says of four
    cover = known.cover(50.0, [0])
    assert cover is not None
    assert cover.instances.total() == 2
