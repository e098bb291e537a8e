"""The hybrid histogram policy with the numbers of its paper."""

from __future__ import annotations

import pytest

from scaler.prewarm.contract import Windows
from tests.scaler.prewarm.samples import LONG, MINUTE_S, made, tell, told


def minutes(windows: Windows) -> tuple[float, float]:
    """Return the windows in minutes."""
    assert windows.keep_alive_s is not None
    return windows.prewarm_s / MINUTE_S, windows.keep_alive_s / MINUTE_S


def test_representative_histogram_sets_windows_by_head_and_tail() -> None:
    """100 idle times in bins of a minute have head 5 and tail 31, widened by 10 %."""
    policy = made("hhp")
    tell(policy, LONG, 0.0)
    assert pytest.approx((4.5, 34.1)) == minutes(policy.windows(0.0))
    bare = made("hhp", margin=0.0)
    tell(bare, LONG, 0.0)
    assert (5, 31) == minutes(bare.windows(0.0))


def test_uniform_histogram_keeps_instance_for_whole_range() -> None:
    """With equal counts in all bins the CV is 0, and the instance is kept for four hours."""
    policy = made("hhp")
    tell(policy, {bin_ + 0.5: 1 for bin_ in range(240)}, 0.0)
    assert Windows(0.0, 14400.0) == policy.windows(0.0)


@pytest.mark.parametrize(("bins", "believed"), [(47, True), (48, True), (49, False)])
def test_histogram_is_used_from_variation_of_two(bins: int, *, believed: bool) -> None:
    """With one idle time in m of 240 bins, the CV is sqrt(240 / m - 1), which is 2 at m = 48."""
    policy = made("hhp")
    tell(policy, {bin_ + 0.5: 1 for bin_ in range(bins)}, 0.0)
    assert believed == (policy.windows(0.0) != Windows(0.0, 14400.0))


@pytest.mark.parametrize(("outside", "forecast"), [(19, False), (20, True), (21, True)])
def test_forecast_is_used_if_half_of_idle_times_are_out_of_range(
    outside: int, *, forecast: bool
) -> None:
    """With 20 idle times in range, 20 out of range are half of them."""
    policy = made("hhp")
    told(policy, [90.0] * 20 + [20000.0] * outside)
    assert forecast == (policy.windows(0.0).prewarm_s > 1000)


def test_a_forecast_has_a_margin_of_15_percent_either_way() -> None:
    """A call every 10 hours gives a load after 8.5 and a release after 11.5 (2 x 15 % later)."""
    policy = told(made("hhp"), [36000.0] * 5)
    assert pytest.approx((510, 690)) == minutes(policy.windows(0.0))


def test_old_pattern_is_forgotten_after_window() -> None:
    """With a window of four hours, the pattern of the day before is forgotten."""
    policy = made("hhp", window_s=14400.0)
    tell(policy, LONG, 0.0)
    assert Windows(0.0, 14400.0) == policy.windows(86400.0)
