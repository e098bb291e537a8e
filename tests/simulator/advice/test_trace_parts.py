"""Position of the parts of a trace, and their request rates."""

from __future__ import annotations

import pytest

from carpool.arrivals.processes import Trace
from simulator.advice.trace_parts import cut, parts

DAY = Trace(
    tuple(600.0 * n for n in range(144)), tuple(float(n % 7 + 1) for n in range(144)), 86400
)


@pytest.mark.parametrize("seed", range(5))
def test_long_trace_has_one_part_per_stretch(seed: int) -> None:
    """Each stretch has one part within the trace, and the first two are from different halves."""
    found = parts(DAY, 8, seed)
    stretches = [int(part.start_s // (86400 / 8)) for part in found]
    assert list(range(8)) == sorted(stretches)
    assert {0, 1} == {stretch // 4 for stretch in stretches[:2]}
    assert all(0 <= part.start_s <= 86400 - part.length_s for part in found)
    assert {600.0} == {part.length_s for part in found}
    assert 8 == len({part.seed for part in found})
    assert found == parts(DAY, 8, seed)


def test_short_trace_is_used_whole_for_each_part() -> None:
    """A short trace is used whole for each part, with another seed."""
    found = parts(Trace((0.0, 60.0), (5.0, 10.0), 120.0), 4, 1)
    assert [(0.0, 120.0)] * 4 == [(part.start_s, part.length_s) for part in found]
    assert 4 == len({part.seed for part in found})


def test_a_busy_trace_has_short_parts() -> None:
    """Parts of a busy trace hold about 100,000 requests, but last at least a minute."""
    assert 100.0 == parts(Trace((0.0,), (1000.0,), 86400.0), 8, 1)[0].length_s
    assert 60.0 == parts(Trace((0.0,), (1e6,), 86400.0), 8, 1)[0].length_s


def test_a_part_has_the_rates_of_its_stretch() -> None:
    """A part starts at time 0 with the rates of its stretch, and is zero after its end."""
    for part in parts(DAY, 8, 3):
        own = cut(DAY, part)
        assert part.length_s == own.end_s
        for at in (0.0, 100.0, 599.9):
            assert DAY.rate(part.start_s + at) == own.rate(at)
        assert 0.0 == own.rate(part.length_s)


@pytest.mark.parametrize("seed", range(5))
def test_parts_have_requests_where_the_section_has(seed: int) -> None:
    """In a week with a minute of calls each day, each day's part has some of them."""
    days = 7
    starts = [at for day in range(days) for at in (86400.0 * day, 86400.0 * day + 60)]
    week = Trace(tuple(starts), (5.0, 0.0) * days, 86400.0 * days)
    found = parts(week, days, seed)
    assert all(any(cut(week, part).rates_rps) for part in found)
    assert list(range(days)) == sorted(int((p.start_s + p.length_s) // 86400) for p in found)
    assert any(part.moved for part in found)
    assert not any(part.moved for part in parts(DAY, 8, seed))
