"""The long-short term histogram policy, with worked numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scaler.prewarm.contract import Windows
from tests.scaler.prewarm.samples import LONG, MINUTE_S, SHORT, made, tell

if TYPE_CHECKING:
    from scaler.prewarm.long_short_histogram import LongShortHistogram

NOW_S = 20 * 3600.0


def of_a_day(gamma: float = 0.5, margin: float = 0.0) -> LongShortHistogram:
    """Return a policy with the idle times ``LONG`` of a day and ``SHORT`` of the last hour."""
    policy: LongShortHistogram = made("lsth", gamma=gamma, margin=margin)
    day = made("lsth", gamma=1.0)
    tell(day, LONG, 0.0)
    hour = made("lsth", gamma=0.0)
    tell(hour, SHORT, NOW_S)
    policy.absorb({"long": day.to_dict()["long"], "short": hour.to_dict()["short"]})
    return policy


def minutes(windows: Windows) -> tuple[float, float]:
    """Return the windows in minutes."""
    assert windows.keep_alive_s is not None
    return windows.prewarm_s / MINUTE_S, windows.keep_alive_s / MINUTE_S


@pytest.mark.parametrize(
    ("gamma", "expected"),
    [(1.0, (5, 31)), (0.0, (3, 7)), (0.3, (3.6, 14.2)), (0.5, (4.0, 19)), (0.7, (4.4, 23.8))],
)
def test_windows_are_weighted_means(gamma: float, expected: tuple[float, float]) -> None:
    """The long histogram alone gives (5, 31) minutes, and the short one (3, 7)."""
    assert pytest.approx(expected) == minutes(of_a_day(gamma).windows(NOW_S))


def test_margins_of_ten_percent() -> None:
    """With equal weights, windows 10 % earlier and later are 3.6 and 20.9 minutes."""
    assert pytest.approx((3.6, 20.9)) == minutes(of_a_day(margin=0.1).windows(NOW_S))


def test_long_histogram_decides_if_short_one_is_empty() -> None:
    """The short histogram is empty, so the long one decides alone."""
    assert pytest.approx((5, 31)) == minutes(of_a_day().windows(NOW_S + 3600))


@pytest.mark.parametrize(("least", "expected"), [(20, (4.0, 19)), (21, (5, 31))])
def test_short_histogram_with_few_idle_times_is_ignored(
    least: int, expected: tuple[float, float]
) -> None:
    """Its 20 idle times are enough if 20 are required, and not if 21 are."""
    policy = made("lsth", margin=0.0, short_least=least)
    policy.absorb(of_a_day().to_dict())
    assert pytest.approx(expected) == minutes(policy.windows(NOW_S))


def test_instance_is_kept_for_whole_range_without_idle_times() -> None:
    """Without idle times the instance is kept for four hours."""
    assert Windows(0.0, 14400.0) == of_a_day().windows(NOW_S + 2 * 86400)


def test_idle_time_counts_in_both_histograms() -> None:
    """An observed idle time counts in the long and in the short histogram."""
    policy = made("lsth", margin=0.0)
    tell(policy, {10.5: 1}, NOW_S)
    assert (10, 11) == minutes(policy.windows(NOW_S))
