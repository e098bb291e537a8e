"""Properties of all built-in prewarm policies."""

from __future__ import annotations

import itertools
import json
import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool import plugins
from carpool.errors import ConfigError
from tests.effort import scaled
from tests.scaler.prewarm.samples import made, told

if TYPE_CHECKING:
    from scaler.prewarm.contract import PrewarmPolicy

NAMES = tuple(plugins.BUILT_IN["prewarm"])
IDLE = st.lists(st.floats(0, 1e5), max_size=40)


def windows_after(policy: PrewarmPolicy, now_s: float) -> tuple[float, float | None]:
    """Return the policy's windows as a pair."""
    found = policy.windows(now_s)
    return found.prewarm_s, found.keep_alive_s


@pytest.mark.parametrize("name", NAMES)
@given(idle=IDLE, later_s=st.floats(0, 1e6))
@settings(max_examples=scaled(30))
def test_same_observations_give_same_windows(name: str, idle: list[float], later_s: float) -> None:
    """Two policies with the same observations agree; `Windows` itself checks the interval."""
    now_s = math.fsum(idle) + later_s
    one, other = (windows_after(told(made(name), idle), now_s) for _ in range(2))
    assert one == other


@pytest.mark.parametrize("name", NAMES)
@given(idle=IDLE, more=IDLE)
@settings(max_examples=scaled(30))
def test_a_restart_changes_nothing(name: str, idle: list[float], more: list[float]) -> None:
    """A new policy that absorbs the saved form of another continues like it."""
    kept = told(made(name), idle)
    fresh = made(name)
    fresh.absorb(json.loads(json.dumps(kept.to_dict())))
    begin_s = math.fsum(idle)
    now_s = begin_s + math.fsum(more)
    after = [windows_after(told(policy, more, begin_s), now_s) for policy in (kept, fresh)]
    assert after[0] == after[1]


@pytest.mark.parametrize("name", NAMES)
@given(parts=st.lists(IDLE, min_size=3, max_size=3))
@settings(max_examples=scaled(20))
def test_replicas_may_be_absorbed_in_any_order(name: str, parts: list[list[float]]) -> None:
    """The order changes neither the saved form nor any window."""
    forms = [told(made(name), part).to_dict() for part in parts]
    found = []
    for order in itertools.permutations(forms):
        whole = made(name)
        for data in order:
            whole.absorb(data)
        found.append(whole.to_dict())
    assert [found[0]] * len(found) == found


@pytest.mark.parametrize("name", NAMES)
def test_instance_is_kept_without_observations(name: str) -> None:
    """A second request is not cold just because no idle time is known yet."""
    prewarm_s, keep_alive_s = windows_after(made(name), 0.0)
    assert 0 == prewarm_s
    assert keep_alive_s is not None
    assert 300 <= keep_alive_s <= 14400


@pytest.mark.parametrize("name", NAMES)
def test_invalid_saved_form_is_refused_without_effect(name: str) -> None:
    """A form that is only partly valid is not absorbed in part either."""
    policy = told(made(name), [100.0, 200.0])
    before = policy.to_dict()
    for data in ({"other": 1}, {**before, **dict.fromkeys(list(before)[-1:] or ["other"], 7)}):
        with pytest.raises(ConfigError):
            policy.absorb(data)
    assert before == policy.to_dict()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "fixed"])
def test_saved_form_with_other_parameters_is_refused(name: str) -> None:
    """Histograms of other bins or windows cannot be added."""
    other = made(name, price_s=60.0) if name == "breakeven" else made(name, bin_s=30.0)
    with pytest.raises(ConfigError, match="bins"):
        made(name).absorb(other.to_dict())


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        ("fixed", "keep_alive_s", -1.0),
        ("hhp", "bin_s", 0.0),
        ("hhp", "range_s", 10.0),
        ("hhp", "head", 0.995),
        ("hhp", "tail", 1.5),
        ("hhp", "margin", -0.1),
        ("hhp", "forecast_margin", 1.5),
        ("hhp", "out_of_bounds_max", 2.0),
        ("hhp", "variation_min", -1.0),
        ("hhp", "window_s", 0.0),
        ("lsth", "bin_s", -60.0),
        ("lsth", "gamma", 1.5),
        ("lsth", "margin", 2.0),
        ("lsth", "head", -0.1),
        ("lsth", "short_s", 1e9),
        ("lsth", "short_least", 0),
        ("breakeven", "price_s", 0.0),
        ("breakeven", "window_s", -1.0),
    ],
)
def test_invalid_parameters_are_refused(name: str, parameter: str, value: float) -> None:
    """The error names a parameter and its valid range."""
    with pytest.raises(ConfigError, match="expected"):
        made(name, **{parameter: value})
