"""Replayed queues, by hand and beside a closed form, and the capacities that they raise."""

from __future__ import annotations

import math

import pytest

from carpool.latency import Resources
from carpool.scaling import Size
from scaler.policies.carpool.cover import Menu
from scaler.policies.carpool.options import Option
from scaler.policies.carpool.replay import Queue

SLO_S, MISS = 0.11, 0.01
ENOUGH = 10_000


def menus() -> list[Menu]:
    """Return menus of a size with batches of two that take over half the objective."""
    size = Size(2, 1.0, 0.0, resources=Resources(1.0), exec_s=0.084, rate_rps=2 / 0.084)
    patient = Menu.patient([Option(size, 0.062)], [1.0], SLO_S, MISS)
    assert patient is not None
    return [Menu.of([Option(size, 0.062)], [1.0], SLO_S, MISS), patient]


def test_instance_that_is_always_free_holds_and_saturated_one_does_not() -> None:
    """Few requests are all in time; more than full batches can serve are not."""
    queue = Queue(1, 4, 0.05, 0.01, 0.0, 1.0)
    assert queue.holds(0.01, 0.0)
    assert not queue.holds(4 / 0.08 * 1.1, 0.01)


def test_share_of_late_requests_is_that_of_a_busy_single_server() -> None:
    """Without slack, a request is refused if the last one began less than its execution ago.

    That is Erlang's loss formula with one server: a share of R s / (1 + R s).
    """
    rate_rps, exec_s = 5.0, 0.1
    lost = rate_rps * exec_s / (1 + rate_rps * exec_s)
    queue = Queue(1, 1, exec_s, 0.0, 0.0, exec_s)
    assert queue.holds(rate_rps, 1.1 * lost)
    assert not queue.holds(rate_rps, 0.9 * lost)


def test_batch_waits_until_full_or_its_time_is_over() -> None:
    """A single request whose batch waits is late if the wait is too long for the objective."""
    assert Queue(1, 2, 0.05, 0.0, 0.04, 0.1).holds(0.01, 0.0)
    assert not Queue(1, 2, 0.05, 0.0, 0.06, 0.1).holds(0.01, 0.5)


@pytest.mark.parametrize("known", menus(), ids=["eager", "patient"])
def test_replay_finds_cheaper_covers_that_hold(known: Menu) -> None:
    """Fewer instances cover a rate after replays, and a replay confirms them."""
    saved = 0.0
    for rate_rps in (5.0, 20.0, 75.0, 150.0):
        before = known.cover(rate_rps, (0,))
        assert known.refine(rate_rps, (0,), math.inf, ENOUGH) < ENOUGH
        after = known.cover(rate_rps, (0,))
        assert before is not None
        assert after is not None
        saved += before.price_per_s - after.price_per_s
        queue = Queue(after.instances.total(), 2, 0.062, 0.022, after.wait_s, SLO_S)
        assert after.price_per_s == before.price_per_s or queue.holds(rate_rps, MISS)
    assert saved >= 2


@pytest.mark.parametrize("known", menus(), ids=["eager", "patient"])
def test_replays_are_limited_and_come_to_an_end(known: Menu) -> None:
    """No call makes more replays than it may, and later calls continue until none is left."""
    made = [known.refine(75.0, (0,), math.inf, 2) for _ in range(20)]
    assert max(made) == 2
    assert 0 == made[-1]
    assert 0 == known.refine(75.0, (0,), math.inf, ENOUGH)
