"""How far off predictions of unknown models are, and what one measured run tells of the others."""

from __future__ import annotations

import dataclasses
import math
import random
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.predictor.cross_validation import measured_errors
from carpool.predictor.fit import Carried, Errors, Fit, ThreadsAndGpu, regime
from carpool.predictor.fitting import fit_profiles
from carpool.predictor.latency_model import OperatorLatencyModel
from carpool.predictor.profile import Setting
from carpool.predictor.regression import Samples
from tests.carpool.profiles import BATCHES, graph, profile, run_s

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from carpool.predictor.graph import Graph
    from carpool.predictor.profile import Profile

SIGMA = 0.1


def _nets(count: int, seed: int) -> list[Graph]:
    draw = random.Random(seed)
    return [
        graph([draw.randint(400, 2500) for _ in range(5)], f"net {seed}-{n}") for n in range(count)
    ]


def _profiles(count: int, seed: int, own: float, each: float) -> list[Profile]:
    """Models off by a factor of their own, which each run of theirs is off from again."""
    draw = random.Random(seed)
    found = []
    for net in _nets(count, seed):
        level = draw.gauss(0, own)
        found.append(profile(net, whole=_wandering(draw, level, each)))
    return found


def _wandering(draw: random.Random, level: float, each: float) -> Callable[[Setting], float]:
    return lambda _: math.exp(level + draw.gauss(0, each))


@cache
def _errors(own: float, each: float) -> Mapping[tuple[ThreadsAndGpu, int], Errors]:
    profiles = _profiles(24, 5, own, each)
    return measured_errors(Samples.of(profiles), range(len(profiles)), {})


@cache
def _fit(own: float, each: float) -> Fit:
    return fit_profiles(_profiles(24, 5, own, each))


def test_what_is_a_models_own_is_carried_to_its_other_runs() -> None:
    """Models off by a factor each: one measured run tells it, and little is left open."""
    for errors in _errors(SIGMA, SIGMA / 10).values():
        for carried in (*errors.settled, *errors.other):
            assert carried.share > 0.8
            low, high = carried.bounds
            plain_low, plain_high = errors.plain
            assert high - low < 0.4 * (plain_high - plain_low)


def test_what_is_each_runs_own_is_not_carried() -> None:
    """Runs off by a factor each: one tells nothing of the others, whose bounds stay."""
    for errors in _errors(0.0, SIGMA).values():
        itself, *settled = errors.settled
        assert 1.0 == itself.share
        for carried in (*settled, *errors.other):
            assert carried.share < 0.5
            low, high = carried.bounds
            plain_low, plain_high = errors.plain
            assert pytest.approx(plain_high - plain_low, rel=0.35) == high - low


@pytest.mark.parametrize("known", [None, Setting(4, 1)])
def test_intervals_hold_what_they_say(known: Setting | None) -> None:
    """Of unmeasured models, nine tenths of the runs lie inside, calibrated or not."""
    fit = _fit(SIGMA, SIGMA / 2)
    inside = []
    for net, found in zip(_nets(24, 6), _profiles(24, 6, SIGMA, SIGMA / 2), strict=True):
        runs = {run.setting: run.median_s for run in found.runs}
        model = OperatorLatencyModel(net, fit, runs={known: runs[known]} if known else {})
        for setting, measured_s in runs.items():
            interval = model.interval(setting.batch, setting.threads, 0)
            assert interval is not None
            if setting != known:
                inside.append(interval.low_s <= measured_s <= interval.high_s)
    assert 0.85 <= sum(inside) / len(inside) <= 0.97


@pytest.mark.parametrize("factor", [0.5, 1.6, 3.0])
def test_another_machine_is_every_runs_alike(factor: float) -> None:
    """An error beyond those of models is not the model's, so all of it is carried."""
    fit = _fit(0.0, SIGMA)
    (net,) = _nets(1, 7)
    model = OperatorLatencyModel(net, fit, runs={Setting(4, 1): run_s(net, 4, 1, factor)})
    for batch in BATCHES:
        for threads in (1, 2):
            predicted_s = model.predict(batch, threads, 0) or math.nan
            assert abs(math.log(predicted_s / run_s(net, batch, threads, factor))) < 2.5 * SIGMA


def test_a_measured_run_is_told_as_it_was_measured() -> None:
    """Whatever its other runs say, a run that was measured takes what it took."""
    fit = _fit(0.0, SIGMA)
    (net,) = _nets(1, 7)
    runs = {Setting(1, 1): run_s(net, 1, 1, 1.2), Setting(8, 1): run_s(net, 8, 1, 0.9)}
    model = OperatorLatencyModel(net, fit, runs=runs)
    for setting, measured_s in runs.items():
        assert pytest.approx(measured_s) == model.predict(setting.batch, setting.threads, 0)


def test_few_models_are_told_from_those_of_all_lengths_or_not_at_all() -> None:
    """Too few errors make no bounds; the guess stands."""
    profiles = _profiles(1, 5, SIGMA, SIGMA)
    few = measured_errors(Samples.of(profiles), range(1), {})
    assert {} == few
    three = _profiles(3, 5, SIGMA, SIGMA)
    for errors in measured_errors(Samples.of(three), range(3), {}).values():
        assert Errors().plain == errors.plain
        assert len(errors.settled) >= 1


def test_unmeasured_distances_are_those_of_the_next() -> None:
    """Batches of 1 and 8 are three doublings apart; what these tell holds for fewer and more."""
    known = [_thinned(each, (1, 8)) for each in _profiles(24, 5, SIGMA, SIGMA / 2)]
    for errors in measured_errors(Samples.of(known), range(24), {}).values():
        itself, *settled = errors.settled
        assert 1.0 == itself.share
        assert [settled[0]] * 4 == settled
        assert settled[0].bounds == itself.bounds
        at_once, *others = errors.other
        assert others[0] in (at_once, others[2])
        assert [others[2]] * 2 == others[2:]


def _thinned(found: Profile, batches: tuple[int, ...]) -> Profile:
    runs = tuple(run for run in found.runs if run.setting.batch in batches)
    rows = tuple(row for row in found.operators if row.setting.batch in batches)
    return dataclasses.replace(found, runs=runs, operators=rows)


@given(st.floats(0, 12), st.booleans())
def test_what_is_carried_lies_between_what_is_known(
    doublings: float,
    same: bool,  # noqa: FBT001
) -> None:
    """Between two distances a line, beyond the last one what it says."""
    known = (Carried(1.0, (-0.1, 0.1)), Carried(0.8, (-0.2, 0.3)), Carried(0.4, (-0.4, 0.5)))
    errors = Errors(settled=known, other=known)
    share, (low, high) = errors.carried(doublings, same=same)
    assert 0.4 <= share <= 1.0
    assert -0.4 <= low <= -0.1
    assert 0.1 <= high <= 0.5
    if doublings >= 2:
        assert pytest.approx((0.4, -0.4, 0.5)) == (share, low, high)


def test_regimes_are_by_length() -> None:
    """Below a millisecond, below ten, and longer."""
    assert [0, 1, 1, 2] == [regime(seconds) for seconds in (9e-4, 1e-3, 9e-3, 1e-2)]
