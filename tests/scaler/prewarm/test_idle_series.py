"""Forecast of the next idle time."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.errors import ConfigError
from scaler.prewarm.hybrid_histogram import IdleSeries

if TYPE_CHECKING:
    from collections.abc import Sequence

IDLE = st.lists(st.floats(0, 1e6), min_size=1, max_size=100)


def series(idle: Sequence[float]) -> IdleSeries:
    """Return a series of consecutive idle times."""
    made = IdleSeries()
    for idle_s, now_s in zip(idle, itertools.accumulate(idle), strict=True):
        made.add(idle_s, now_s)
    return made


@pytest.mark.parametrize("idle", [[20000.0], [20000.0] * 9])
def test_a_timer_is_forecast_exactly(idle: list[float]) -> None:
    """A single idle time and constant idle times are forecast to repeat."""
    assert 20000 == series(idle).forecast()


def test_alternating_idle_times_are_forecast() -> None:
    """If long and short idle times alternate, the forecast is near the one that is next."""
    assert 45000 < series([20000, 50000] * 8 + [20000]).forecast() <= 50000
    assert 20000 <= series([20000, 50000] * 8).forecast() < 25000


def test_forecast_follows_lasting_increase() -> None:
    """After idle times have grown and stayed long, the forecast is above their mean."""
    idle = [20000.0] * 10 + [40000.0] * 10
    assert 37000 < series(idle).forecast() <= 40000


def test_forecast_of_independent_idle_times_is_mean() -> None:
    """The forecast of independent idle times is about their mean."""
    idle = np.random.default_rng(1).uniform(15000, 45000, 64).tolist()
    assert np.mean(idle) == pytest.approx(series(idle).forecast(), rel=0.15)


@given(idle=IDLE)
def test_a_forecast_is_within_the_range_of_the_latest(idle: list[float]) -> None:
    """The forecast is between the minimum and the maximum of the last 64 idle times."""
    latest = idle[-64:]
    assert min(latest) <= series(idle).forecast() <= max(latest)


@given(parts=st.lists(IDLE, min_size=3, max_size=3))
def test_merging_is_independent_of_order(parts: list[list[float]]) -> None:
    """The latest idle times of all series remain, also if merged from JSON."""
    forms = []
    for order in itertools.permutations(parts):
        whole = IdleSeries()
        for part in order:
            whole.merge(IdleSeries.from_dict(json.loads(json.dumps(series(part).to_dict()))))
        forms.append(whole.to_dict())
    assert [forms[0]] * len(forms) == forms
    assert min(64, sum(map(len, parts))) >= len(forms[0])


@pytest.mark.parametrize("data", [{}, [1], [[1]], [[1, 2, 3]], [[1, -2]], [[1, "2"]]])
def test_malformed_saved_form_is_refused(data: object) -> None:
    """The error names the pair."""
    with pytest.raises(ConfigError, match="series"):
        IdleSeries.from_dict(data)
