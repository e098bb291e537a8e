"""The long-short term histogram, by worked numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scaler.prewarm.contract import Windows
from tests.scaler.prewarm.samples import LONG, MINUTE_S, SHORT, made, tell

if TYPE_CHECKING:
    from scaler.prewarm.long_short_histogram import LongShortHistogram

NOW_S = 20 * 3600.0


def of_a_day(gamma: float = 0.5, margin: float = 0.0) -> LongShortHistogram:
    """What is in ``SHORT`` is the last hour's; with what came before it is what ``LONG`` says."""
    policy: LongShortHistogram = made("lsth", gamma=gamma, margin=margin)
    day = made("lsth", gamma=1.0)
    tell(day, LONG, 0.0)
    hour = made("lsth", gamma=0.0)
    tell(hour, SHORT, NOW_S)
    policy.absorb({"long": day.to_dict()["long"], "short": hour.to_dict()["short"]})
    return policy


def minutes(windows: Windows) -> tuple[float, float]:
    """The windows in minutes."""
    assert windows.keep_alive_s is not None
    return windows.prewarm_s / MINUTE_S, windows.keep_alive_s / MINUTE_S


@pytest.mark.parametrize(
    ("gamma", "expected"),
    [(1.0, (5, 31)), (0.0, (3, 7)), (0.3, (3.6, 14.2)), (0.5, (4.0, 19)), (0.7, (4.4, 23.8))],
)
def test_windows_are_weighted_means(gamma: float, expected: tuple[float, float]) -> None:
    """The long histogram says (5, 31) minutes, the short one (3, 7)."""
    assert pytest.approx(expected) == minutes(of_a_day(gamma).windows(NOW_S))


def test_margins_of_ten_percent() -> None:
    """Half and half, and 10 % earlier and later: 3.6 and 20.9 minutes."""
    assert pytest.approx((3.6, 20.9)) == minutes(of_a_day(margin=0.1).windows(NOW_S))


def test_an_hour_without_requests_leaves_the_word_to_the_day() -> None:
    """An empty short histogram has no quantiles; the long one decides alone."""
    assert pytest.approx((5, 31)) == minutes(of_a_day().windows(NOW_S + 3600))


@pytest.mark.parametrize(("least", "expected"), [(20, (4.0, 19)), (21, (5, 31))])
def test_a_short_histogram_of_too_few_has_no_say(least: int, expected: tuple[float, float]) -> None:
    """It holds 20 idle times: enough for 20, and not for 21."""
    policy = made("lsth", margin=0.0, short_least=least)
    policy.absorb(of_a_day().to_dict())
    assert pytest.approx(expected) == minutes(policy.windows(NOW_S))


def test_a_day_without_requests_keeps_the_range() -> None:
    """Nothing is known: the instance stays for four hours."""
    assert Windows(0.0, 14400.0) == of_a_day().windows(NOW_S + 2 * 86400)


def test_one_idle_time_is_in_both() -> None:
    """What was just observed counts as long and as short."""
    policy = made("lsth", margin=0.0)
    tell(policy, {10.5: 1}, NOW_S)
    assert (10, 11) == minutes(policy.windows(NOW_S))
