"""Sufficient numbers of instances, and execution times by batch size."""

from __future__ import annotations

import math

import numpy as np
import pytest

from carpool.latency import Configuration
from carpool.latency.coefficients import Coefficients, CpuCoefficients, Curve
from carpool.latency.table import Table
from scaler.planning.cost import PayPerUse, Prices
from scaler.policies.common.erlang import enough, waiting_share
from scaler.policies.harmonybatch.execution_times import SlicedTimes

NORMAL = Coefficients(
    CpuCoefficients({1: Curve(0, 1, 0.2)}, {1: Curve(0, 1, 0.3)}, 0.0, 100.0), None
)


@pytest.mark.parametrize(
    ("instances", "busy", "share"), [(1, 0.5, 0.5), (2, 1.0, 1 / 3), (10, 5.0, 0.0361)]
)
def test_waiting_share_agrees_with_erlang_c(instances: int, busy: float, share: float) -> None:
    """Waiting shares are the textbook values of Erlang's C."""
    assert pytest.approx(share, abs=1e-4) == waiting_share(instances, busy)


def test_all_batches_wait_if_load_exceeds_instances() -> None:
    """All batches wait if the load is not below the number of instances."""
    assert 1 == waiting_share(2, 2.0) == waiting_share(0, 0.0)


@pytest.mark.timeout(20)
def test_waiting_share_of_very_many_instances_is_0() -> None:
    """For very many instances the result is 0, without a loop over all of them."""
    assert 0 == waiting_share(10**12, 1.0) == waiting_share(10**12, 0.0)


@pytest.mark.parametrize("busy", [1e-9, 0.01, 1.0, 7.3, 90.0, 999.0])
def test_sufficient_number_is_minimal(busy: float) -> None:
    """The number is sufficient, and one less is not."""
    count = enough(busy, 1e-3)
    assert waiting_share(count, busy) <= 1e-3 < (waiting_share(count - 1, busy) if count > 1 else 1)


def test_sufficient_number_follows_square_root_rule_at_high_load() -> None:
    """From a thousand on, the number follows a square-root rule and is never too low."""
    assert 0 == enough(0.0)
    assert waiting_share(enough(2000.0), 2000.0) <= 1e-3
    assert enough(1e6) <= 1e6 + 4e3


def test_sliced_times_have_tails_of_model() -> None:
    """Sliced times have the mean, tail and expected excess of the model's normal distribution."""
    spread = 0.1 / 2.3263
    times = SlicedTimes(NORMAL, Configuration(1, 1.0, 0.0), PayPerUse(Prices(cpu_core_s=2.0)))
    at = np.array([-1.0, 0.1, 0.2 + spread, 0.3, 9.0])
    tails, beyond = times.tails(at)
    assert pytest.approx([1, 1, 0.15866, 0.01, 0], abs=0.013) == tails[0]
    assert pytest.approx(times.mean_s[0] + 1) == beyond[0, 0]
    assert pytest.approx(0.0833 * spread, rel=0.05) == beyond[0, 2]
    assert 0 == beyond[0, 4]
    assert pytest.approx(2 * times.mean_s) == times.costs


def test_unknown_batch_size_is_padded() -> None:
    """Batches of unknown sizes run as the next larger one, at its price."""
    few = Coefficients(
        CpuCoefficients({4: Curve(0, 1, 0.4)}, {4: Curve(0, 1, 0.4)}, 0.0, 0.0), None
    )
    padded = SlicedTimes(few, Configuration(4, 1.0, 0.0), PayPerUse(Prices(cpu_core_s=1.0)))
    assert pytest.approx([0.4] * 4) == padded.mean_s
    assert pytest.approx([0.4] * 4) == padded.costs
    assert pytest.approx([1, 0]) == padded.tails(np.array([0.4 - 1e-9, 0.4]))[0][2]
    table = Table({Configuration(batch, 1.0, 0.0): 0.1 * batch for batch in (1, 2, 4)})
    times = SlicedTimes(table, Configuration(4, 1.0, 0.0), PayPerUse(Prices(call=1.0)))
    assert pytest.approx([0.1, 0.2, 0.3, 0.4]) == times.mean_s
    assert math.isfinite(padded.tails(np.array(-1e9))[1].max())
