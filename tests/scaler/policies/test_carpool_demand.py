"""The rate to provide instances for: noise, jumps, trends and bursts."""

from __future__ import annotations

import math
import random

from scaler.policies.carpool.demand import Demands

LOAD_S = 2.0


def run(rates: list[float], demands: Demands | None = None) -> list[tuple[float, float]]:
    """Return level and reserve of each round at intervals of half a second."""
    demands = demands or Demands(15.0, 1.0)
    found = [demands.of("f", rate, LOAD_S, 0.5 * at) for at, rate in enumerate(rates)]
    return [(each.level_rps, each.reserve_rps) for each in found]


def noisy(rate_rps: float, rounds: int) -> list[float]:
    """Return noisy rates, correlated as counts of overlapping windows of ten seconds."""
    draw = random.Random(1)
    deviation = math.sqrt(rate_rps / 10)
    rates, apart = [], 0.0
    for _ in range(rounds):
        apart = 0.95 * apart + math.sqrt(1 - 0.95**2) * draw.gauss(0, deviation)
        rates.append(rate_rps + apart)
    return rates


def test_noise_is_averaged() -> None:
    """The level varies less than the counts, and the reserve is small."""
    rates = noisy(100.0, 1200)
    found = run(rates)[200:]
    levels = [level for level, _ in found]
    assert max(levels) - min(levels) < max(rates[200:]) - min(rates[200:])
    assert max(reserve for _, reserve in found) < 5.0


def test_jump_raises_level_at_once() -> None:
    """A jump raises the level at once, with a reserve for the uncertainty of the count."""
    found = run([20.0] * 100 + [100.0] * 60)
    assert found[99] == (20.0, 0.0)
    level, reserve = found[100]
    assert level == 100.0
    assert 5.0 < reserve < 20.0  # deviations of a count of half a second
    assert found[-1][0] == 100.0
    assert 0 < found[-1][1] < 20.0


def test_steady_rise_has_reserve_for_loading_time() -> None:
    """A steadily rising load has a reserve for the rise while an instance loads."""
    rates = [100.0 + at for at in range(400)]  # two a second more, each second
    _, reserve = run(rates)[-1]
    assert LOAD_S * 2.0 < reserve < 60.0


def test_significant_fall_lowers_level_at_once() -> None:
    """A significant fall is not averaged; the guard delays reductions."""
    assert run([100.0] * 50 + [10.0])[-1][0] == 10.0


def test_functions_have_separate_levels() -> None:
    """Functions have separate levels."""
    demands = Demands(15.0, 1.0)
    run([100.0] * 10, demands)
    assert demands.of("g", 1.0, LOAD_S, 100.0).rate_rps == 1.0


def test_steady_rise_is_extrapolated() -> None:
    """With ``trend``, a steady rise is extrapolated to within a few percent."""
    rates = [100.0 + 0.5 * at for at in range(400)]  # one a second more, each second
    counted = [sum(rates[max(0, at - 20) : at]) / min(at, 20) for at in range(1, 401)]
    (*_, (level, reserve)) = run(counted, Demands(15.0, 0.0))
    then_rps = rates[-1] + LOAD_S
    assert 0.98 * then_rps < level + reserve < 1.04 * then_rps
    (*_, (level, reserve)) = run(counted, Demands(15.0, 0.0, trend=False))
    assert level + reserve < 0.98 * then_rps


def test_noise_is_no_trend() -> None:
    """Noise in a constant load rarely gives a reserve, and then a small one."""
    found = run(noisy(100.0, 1200), Demands(15.0, 0.0))[200:]
    assert sum(reserve > 0 for _, reserve in found) < 0.15 * len(found)
    assert sum(reserve for _, reserve in found) / len(found) < 1.5


def test_jump_is_no_trend() -> None:
    """A jump is not extrapolated as a trend."""
    assert run([20.0] * 100 + [100.0] * 60, Demands(15.0, 0.0, surge=False))[-1] == (100.0, 0.0)


def test_next_burst_has_the_rate_of_the_last() -> None:
    """At the start of a second burst, a first count within chance of the known rate is corrected.

    One that chance does not explain is believed, and replaces what is known if it lasts.
    """
    bursts, calm = [80.0] * 40, [5.0] * 60
    first_count = 62.0  # of half a second
    found = run([*calm, *bursts, *calm, first_count], Demands(15.0, 0.0))
    assert 80.0 == found[-1][0]
    off = Demands(15.0, 0.0, bursts=False)
    assert first_count == run([*calm, *bursts, *calm, first_count], off)[-1][0]
    higher = [*calm, *bursts, *calm, *[200.0] * 40]
    assert 200.0 == run(higher, Demands(15.0, 0.0))[-40][0]
    assert 200.0 == run([*higher, *calm, 170.0], Demands(15.0, 0.0))[-1][0]


def test_chance_maximum_within_a_burst_is_not_followed() -> None:
    """A count two deviations above a burst's known rate hardly raises the level."""
    rates = [5.0] * 60 + [80.0] * 80 + [86.0]
    assert run(rates, Demands(15.0, 0.0))[-1][0] < 80.5
    assert run(rates, Demands(15.0, 0.0, bursts=False))[-1][0] == 86.0


def test_burst_that_decays_is_followed() -> None:
    """A level follows a burst whose rate falls beyond chance."""
    rates = [10.0] * 60 + [10 + 90 * math.exp(-at / 80) for at in range(400)]
    levels = [level for level, _ in run(rates, Demands(15.0, 0.0))]
    assert all(level <= 1.4 * rate for level, rate in zip(levels, rates, strict=True))
    assert levels[-1] < 12.0
