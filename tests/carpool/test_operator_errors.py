"""Errors of predictions for unknown models, and what one measured run says about the other runs."""

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

    from carpool.onnx_graph.operator_graph import Graph
    from carpool.predictor.profile import Profile

SIGMA = 0.1


def _nets(count: int, seed: int) -> list[Graph]:
    draw = random.Random(seed)
    return [
        graph([draw.randint(400, 2500) for _ in range(5)], f"net {seed}-{n}") for n in range(count)
    ]


def _profiles(count: int, seed: int, own: float, each: float) -> list[Profile]:
    """Return profiles with a random error per model and a further one per run."""
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
    return measured_errors(Samples.of(profiles), range(len(profiles)))


@cache
def _fit(own: float, each: float) -> Fit:
    return fit_profiles(_profiles(24, 5, own, each))


def test_errors_of_a_model_are_corrected_in_its_other_runs() -> None:
    """If errors are those of models, one measured run corrects most of the error of the others."""
    for errors in _errors(SIGMA, SIGMA / 10).values():
        for carried in (*errors.settled, *errors.other):
            assert carried.share > 0.8
            low, high = carried.bounds
            plain_low, plain_high = errors.plain
            assert high - low < 0.4 * (plain_high - plain_low)


def test_errors_of_single_runs_do_not_narrow_other_bounds() -> None:
    """If errors are those of single runs, one measured run does not narrow the others' bounds."""
    for errors in _errors(0.0, SIGMA).values():
        itself, *settled = errors.settled
        assert 1.0 == itself.share
        for carried in (*settled, *errors.other):
            assert carried.share < 0.5
            low, high = carried.bounds
            plain_low, plain_high = errors.plain
            assert pytest.approx(plain_high - plain_low, rel=0.35) == high - low


@pytest.mark.parametrize("known", [None, Setting(4, 1)])
def test_intervals_contain_nine_tenths_of_runs(known: Setting | None) -> None:
    """Nine tenths of an unmeasured model's runs are within their intervals, calibrated or not."""
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
def test_error_of_the_machine_is_corrected_in_all_runs(factor: float) -> None:
    """An error larger than those of models is the machine's, and is corrected in all runs."""
    fit = _fit(0.0, SIGMA)
    (net,) = _nets(1, 7)
    model = OperatorLatencyModel(net, fit, runs={Setting(4, 1): run_s(net, 4, 1, factor)})
    for batch in BATCHES:
        for threads in (1, 2):
            predicted_s = model.predict(batch, threads, 0) or math.nan
            assert abs(math.log(predicted_s / run_s(net, batch, threads, factor))) < 2.5 * SIGMA


def test_measured_run_is_predicted_as_measured() -> None:
    """A measured run is predicted as it was measured, whatever the other runs."""
    fit = _fit(0.0, SIGMA)
    (net,) = _nets(1, 7)
    runs = {Setting(1, 1): run_s(net, 1, 1, 1.2), Setting(8, 1): run_s(net, 8, 1, 0.9)}
    model = OperatorLatencyModel(net, fit, runs=runs)
    for setting, measured_s in runs.items():
        assert pytest.approx(measured_s) == model.predict(setting.batch, setting.threads, 0)


def test_default_bounds_are_kept_with_too_few_errors() -> None:
    """With too few errors, the default bounds are kept."""
    profiles = _profiles(1, 5, SIGMA, SIGMA)
    few = measured_errors(Samples.of(profiles), range(1))
    assert {} == few
    three = _profiles(3, 5, SIGMA, SIGMA)
    for errors in measured_errors(Samples.of(three), range(3)).values():
        assert Errors().plain == errors.plain
        assert len(errors.settled) >= 1


def test_unmeasured_distance_uses_errors_of_next_measured_one() -> None:
    """Distances without measured errors get those of the next measured distance."""
    known = [_thinned(each, (1, 8)) for each in _profiles(24, 5, SIGMA, SIGMA / 2)]
    for errors in measured_errors(Samples.of(known), range(24)).values():
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
def test_errors_are_interpolated_between_distances(
    doublings: float,
    same: bool,  # noqa: FBT001
) -> None:
    """Values are interpolated between two distances, and constant beyond the last one."""
    known = (Carried(1.0, (-0.1, 0.1)), Carried(0.8, (-0.2, 0.3)), Carried(0.4, (-0.4, 0.5)))
    errors = Errors(settled=known, other=known)
    share, (low, high) = errors.carried(doublings, same=same)
    assert 0.4 <= share <= 1.0
    assert -0.4 <= low <= -0.1
    assert 0.1 <= high <= 0.5
    if doublings >= 2:
        assert pytest.approx((0.4, -0.4, 0.5)) == (share, low, high)


def test_regimes_are_by_length() -> None:
    """The regimes are below 1 ms, below 10 ms, and longer."""
    assert [0, 1, 1, 2] == [regime(seconds) for seconds in (9e-4, 1e-3, 9e-3, 1e-2)]
