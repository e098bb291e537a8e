"""Estimation of execution time by batch size."""

from __future__ import annotations

import random

import pytest

from sidecar.core.exec_time import ExecTime


def taught(*samples: tuple[int, float]) -> ExecTime:
    """Return an estimator that has observed ``samples``."""
    exec_time = ExecTime()
    for size, exec_s in samples:
        exec_time.observe(size, exec_s)
    return exec_time


def test_estimate_is_unknown_without_samples() -> None:
    """Without samples the estimator is not known and returns zero."""
    exec_time = ExecTime()
    assert (False, 0.0, 0.0) == (exec_time.known, exec_time.mean(8), exec_time.bound(8))


def test_samples_of_one_size_imply_cost_per_batch() -> None:
    """With samples of one size, the cost is assumed to be per batch."""
    assert pytest.approx(0.010) == taught((4, 0.010)).mean(32)


def test_samples_of_two_sizes_give_base_and_cost_per_item() -> None:
    """Samples of two sizes give the base and the cost per item."""
    exec_time = taught(*[(size, 0.002 + 0.001 * size) for size in (1, 8)] * 5)
    assert pytest.approx(0.034, rel=1e-6) == exec_time.mean(32)


def test_the_slope_is_never_negative() -> None:
    """Noise that makes large batches look cheaper does not make the slope negative."""
    exec_time = taught((1, 0.010), (32, 0.001))
    assert exec_time.mean(1) <= exec_time.mean(32) <= exec_time.mean(64)


def test_the_base_is_never_negative() -> None:
    """A superlinear cost does not make small batches free."""
    exec_time = taught(*[(size, 1e-5 * size * size) for size in (16, 32)] * 5)
    assert exec_time.mean(1) > 0


def test_one_outlier_is_clipped() -> None:
    """A single stall of a hundred times the usual moves the estimate by less than a third."""
    exec_time = taught(*[(8, 0.010)] * 50, (8, 1.0))
    assert exec_time.mean(8) < 0.013


def test_a_lasting_change_is_followed() -> None:
    """The estimate follows a lasting doubling of the execution time."""
    exec_time = taught(*[(8, 0.010)] * 100, *[(8, 0.020)] * 300)
    assert pytest.approx(0.020, rel=0.05) == exec_time.mean(8)


def test_change_of_speed_is_drift_and_replaces_old_estimate() -> None:
    """A change of speed counts as drift, and thirty batches later the old speed is forgotten."""
    exec_time = taught(*[(8, 0.010 + 0.0001 * (i % 3)) for i in range(200)])
    assert 0 == exec_time.drifts
    for _ in range(30):
        exec_time.observe(8, 0.030)
    assert exec_time.drifts >= 1
    assert pytest.approx(0.030, rel=0.1) == exec_time.mean(8)


def test_noise_is_not_drift() -> None:
    """Five thousand batches with ten percent noise cause at most five false drift alarms."""
    rng = random.Random(2)
    exec_time = ExecTime()
    for size in rng.choices(range(1, 33), k=5000):
        exec_time.observe(size, (0.002 + 0.0005 * size) * rng.gauss(1, 0.1))
    assert exec_time.drifts <= 5


def test_the_bound_is_rarely_exceeded() -> None:
    """With ten percent noise, the bound holds for at least 97 of 100 batches."""
    rng = random.Random(1)
    samples = [
        (s, (0.002 + 0.0005 * s) * rng.gauss(1, 0.1)) for s in rng.choices(range(1, 33), k=2000)
    ]
    exec_time = taught(*samples[:1000])
    within = sum(took <= exec_time.bound(size) for size, took in samples[1000:])
    assert within >= 970
