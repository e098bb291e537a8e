"""The hybrid histogram policy, by the numbers of its paper."""

from __future__ import annotations

import pytest

from scaler.prewarm.contract import Windows
from tests.scaler.prewarm.samples import LONG, MINUTE_S, made, tell, told


def minutes(windows: Windows) -> tuple[float, float]:
    """The windows in minutes."""
    assert windows.keep_alive_s is not None
    return windows.prewarm_s / MINUTE_S, windows.keep_alive_s / MINUTE_S


def test_head_and_tail_of_a_histogram_that_says_something() -> None:
    """100 idle times in bins of a minute: head 5 and tail 31, and 10 % away from both."""
    policy = made("hhp")
    tell(policy, LONG, 0.0)
    assert pytest.approx((4.5, 34.1)) == minutes(policy.windows(0.0))
    bare = made("hhp", margin=0.0)
    tell(bare, LONG, 0.0)
    assert (5, 31) == minutes(bare.windows(0.0))


def test_a_histogram_that_says_nothing_keeps_the_range() -> None:
    """As many idle times in every bin: the CV is 0, and the instance stays for four hours."""
    policy = made("hhp")
    tell(policy, {bin_ + 0.5: 1 for bin_ in range(240)}, 0.0)
    assert Windows(0.0, 14400.0) == policy.windows(0.0)


@pytest.mark.parametrize(("bins", "believed"), [(47, True), (48, True), (49, False)])
def test_it_is_believed_from_a_variation_of_two_on(bins: int, *, believed: bool) -> None:
    """One idle time in m of 240 bins: the CV is sqrt(240 / m - 1), which is 2 at m = 48."""
    policy = made("hhp")
    tell(policy, {bin_ + 0.5: 1 for bin_ in range(bins)}, 0.0)
    assert believed == (policy.windows(0.0) != Windows(0.0, 14400.0))


@pytest.mark.parametrize(("outside", "forecast"), [(19, False), (20, True), (21, True)])
def test_it_forecasts_from_half_out_of_range_on(outside: int, *, forecast: bool) -> None:
    """With 20 idle times in range, 20 beyond are half."""
    policy = made("hhp")
    told(policy, [90.0] * 20 + [20000.0] * outside)
    assert forecast == (policy.windows(0.0).prewarm_s > 1000)


def test_a_forecast_has_a_margin_of_15_percent_either_way() -> None:
    """A call every 10 hours: back after 8.5, gone after 11.5 (2 x 15 % after the load)."""
    policy = told(made("hhp"), [36000.0] * 5)
    assert pytest.approx((510, 690)) == minutes(policy.windows(0.0))


def test_a_window_forgets() -> None:
    """With four hours of memory, the pattern of the day before is gone."""
    policy = made("hhp", window_s=14400.0)
    tell(policy, LONG, 0.0)
    assert Windows(0.0, 14400.0) == policy.windows(86400.0)
