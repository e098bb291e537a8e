"""When arrivals are more than what was told lets expect."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.core.load import Load
from sidecar.core.surge import Surge


def poisson(rate_rps: float, from_s: float, until_s: float, seed: int = 1) -> list[float]:
    """Arrivals at random."""
    rng = np.random.default_rng(seed)
    count = rng.poisson(rate_rps * (until_s - from_s))
    return sorted(rng.uniform(from_s, until_s, count).tolist())


def told_of(rate_rps: float, seed: int = 1) -> Surge:
    """One that has told of a rate, twice a second for half a minute."""
    surge = Surge(0.0)
    for number in range(60):
        for at_s in poisson(rate_rps, number / 2, number / 2 + 0.5, seed + number):
            surge.arrived(at_s)
        surge.told(number / 2 + 0.5)
    return surge


@pytest.mark.parametrize("rate_rps", [2.0, 20.0, 200.0, 5000.0])
def test_three_times_the_rate_is_news_once(rate_rps: float) -> None:
    """It shows within the time in which the new rate brings some tens of requests, and once."""
    surge = told_of(rate_rps)
    news = [at_s for at_s in poisson(3 * rate_rps, 30.0, 60.0) if surge.arrived(at_s)]
    assert 1 == len(news)
    assert news[0] - 30.0 < 40 / (3 * rate_rps) + 0.05
    assert surge.told(60.0)


def test_what_was_told_is_no_news() -> None:
    """After a report of a jump the same rate is what is expected, from the second one at latest."""
    surge = told_of(50.0)
    now_s = next(at_s for at_s in poisson(200.0, 30.0, 31.0) if surge.arrived(at_s))
    surge.told(now_s)
    again = []
    for number in range(20):
        arrivals = poisson(200.0, now_s, now_s + 0.5, number)
        again += [number for at_s in arrivals if surge.arrived(at_s)]
        now_s += 0.5
        surge.told(now_s)
    assert not [number for number in again if number > 1]


@pytest.mark.parametrize("rate_rps", [0.2, 3.0, 60.0, 900.0])
def test_chance_is_rarely_news(rate_rps: float) -> None:
    """Fewer than one report in a thousand of an even load is out of turn."""
    surge, news, count = told_of(rate_rps), 0, 4000
    for number in range(count):
        start_s = 30.0 + number / 2
        for at_s in poisson(rate_rps, start_s, start_s + 0.5, 1000 + number):
            news += surge.arrived(at_s)
        surge.told(start_s + 0.5)
    assert news < count / 1000


def test_a_fall_is_no_news() -> None:
    """Whoever plans hears of it in its turn."""
    surge = told_of(100.0)
    assert not any(surge.arrived(at_s) for at_s in poisson(10.0, 30.0, 40.0))
    assert not surge.told(40.0)


@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.booleans()),
        max_size=300,  # a pause; then a request or report
    )
)
def test_news_comes_as_soon_as_every_look_would_have_found_it(
    events: list[tuple[float, bool]],
) -> None:
    """Looking only where there can be something finds what looking at each request finds."""
    quick, slow, now_s = Surge(0.0), Surge(0.0), 0.0
    heard = False
    for pause_s, is_report in events:
        now_s += pause_s
        if is_report:
            assert slow.told(now_s) == quick.told(now_s)
            heard = False
            continue
        slow._look_at = 0
        found = slow.arrived(now_s)
        assert quick.arrived(now_s) == (found and not heard)
        heard = heard or found


def test_a_load_says_so_when_it_happens_and_in_what_it_gives() -> None:
    """Whoever reports is called at once, and what he takes says why."""
    load, called = Load(0.0), []
    load.surged = lambda: called.append(True)
    for at_s in poisson(20.0, 0.0, 10.0):
        load.arrived("web", at_s)
    load.take(10.0)
    called.clear()
    for at_s in poisson(200.0, 10.0, 10.5):
        load.arrived("web", at_s)
    assert [True] == called
    assert load.take(10.5).surging
    assert not load.take(11.0).surging


def test_requests_that_were_only_counted_are_told_as_others_are() -> None:
    """The same news and the same rate, whether each was looked at or not."""
    one, other = Surge(0.0, 10.0), Surge(0.0, 10.0)
    for number, count in enumerate((10, 9, 60, 60)):
        for _ in range(count):
            one.arrived(number + 0.5)
        other.add(count)
        assert one.told(number + 1.0) == other.told(number + 1.0) == (number == 2)
        assert one.told_rps == other.told_rps
