"""Decisions of INFaaS's public code, compared with the paper and with this implementation.

The code's rules are written out as references: they are not followed, and the numbers show where
they lead elsewhere. Loads and rates are in requests per second, latencies in milliseconds.
"""

from __future__ import annotations

import math

import pytest

from scaler.policies.infaas.greedy import greedy
from scaler.policies.infaas.published import SLACK, published
from scaler.policies.infaas.task import Need, Option, Task


def latency_line(points: dict[int, float]) -> tuple[float, float]:
    """Return slope and intercept of a least-squares line; one point gives a line through 0."""
    if len(points) == 1:
        ((_, only_ms),) = points.items()
        return only_ms, 0.0
    mean_x, mean_y = (sum(v) / len(points) for v in (points.keys(), points.values()))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points.items())
    slope /= sum((x - mean_x) ** 2 for x in points)
    return slope, mean_y - slope * mean_x


def steps(load: float, instances: int, each: float, load_ms: float | None = None) -> int:
    """Return the number of instances to add, or -1 for a vote to remove one.

    ``load_ms`` is for variants that do not run on cores.
    """
    there = instances * each
    lacking = load - 0.95 * there if load_ms is None else load - there + 0.0002 * there * load_ms
    if lacking > 0:
        return math.ceil(lacking / each)
    return -1 if load <= (instances - 1) * each else 0


@pytest.mark.parametrize(
    ("load", "code", "ours"),
    [
        pytest.param(9.6, +1, +1, id="headroom 1.04: both add one"),
        pytest.param(9.4, 0, 0, id="headroom 1.06: both rest"),
        pytest.param(5.0, -1, 0, id="one would just do: without slack it is all there is"),
        pytest.param(4.7, -1, -1, id="one with slack would do: both remove one"),
    ],
)
def test_scaling_steps_of_two_instances(load: float, code: int, ours: int) -> None:
    """Two instances of five requests per second each: the code and this implementation compared."""
    assert code == steps(load, 2, 5.0)
    task = Task((Option(5.0, 1.0),), (2,), (Need(SLACK * load, (5.0,)),))
    assert ours == greedy(task).counts[0] - 2 == published(task).counts[0] - 2


def test_slow_loading_cancels_running_capacity_in_public_code() -> None:
    """A loading time of 5 s cancels all running capacity in the code, but not in the program."""
    assert 1 == steps(1.0, 3, 100.0, load_ms=5000.0)
    assert -1 == steps(1.0, 3, 100.0, load_ms=1000.0)
    task = Task((Option(100.0, 1.0, 5.0),), (3,), (Need(SLACK, (100.0,)),), 0.1)
    assert (1,) == greedy(task).counts


def test_public_code_fits_latency_line_by_batch_size() -> None:
    """Latencies are a fitted line; from one point, a batch of two takes twice as long."""
    assert (2.0, 3.0) == pytest.approx(latency_line({1: 5.0, 2: 7.0, 4: 11.0}))
    assert (5.0, 0.0) == latency_line({1: 5.0})


def test_public_code_upgrades_by_loading_time_not_cost() -> None:
    """The code chooses an upgrade by loading times at any price; this implementation by cost."""
    replicate_s, upgrade_s = 10 * 1.0, 1 * 8.0
    assert not replicate_s > 1.5 * upgrade_s
    assert 20 * 1.0 > 1.5 * upgrade_s
    for dear, chosen in ((16.0, (20, 0)), (3.0, (0, 1))):
        options = (Option(5.0, 0.5, 1.0), Option(100.0, dear, 8.0))
        task = Task(options, (0, 0), (Need(100.0, (5.0, 100.0)),), 0.05)
        assert chosen == greedy(task).counts
