"""Laws of one machine scaled to another that was calibrated."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from carpool.errors import ConfigError
from carpool.onnx_graph.operator_graph import Case
from carpool.predictor.calibration import Calibration, scaled
from carpool.predictor.calibration_file import (
    calibration_path,
    read_calibration,
    write_calibration,
)
from carpool.predictor.features import sized
from carpool.predictor.fit import ThreadsAndGpu
from carpool.predictor.fit_database import read_model
from carpool.predictor.prediction_intervals import CALIBRATED, FOREIGN, scaling
from carpool.predictor.profile import Alone, Origin, Overhead, Setting
from carpool.predictor.roofline_terms import BOUNDS, WORK
from carpool.predictor.roofs import roofs
from tests.carpool.profiles import BATCHES, ORIGIN, graph, learnt, operator_s, run_s, taught

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

pytestmark = pytest.mark.xdist_group("profiles")  # what is learnt from them is learnt once
HERE = Origin("another processor", ORIGIN.runtime)
NET = graph([333, 512, 700, 64], "fresh")
REFERENCES = graph([256, 512, 300], "references")
COST = Overhead(5e-6, 1e-6)
UNIT = ThreadsAndGpu(1)


def _calibration(slower: float, threads: tuple[int, ...] = (1, 2)) -> Calibration:
    """Return the calibration of a machine whose operators take ``slower`` times as long."""
    rows = [
        Alone(case, Setting(batch, count), 0, slower * operator_s(case, count))
        for count in threads
        for batch in (1, 8)
        for operator in REFERENCES.operators
        for case in [operator.at(batch)]
    ]
    return Calibration(HERE, tuple(rows), dict.fromkeys(threads, COST))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Database of what was learnt from the test processor."""
    return taught(tmp_path / "p.sqlite")


@pytest.mark.parametrize("slower", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("threads", [1, 2])
def test_model_is_predicted_on_another_machine_from_few_operators(
    database: Path, slower: float, threads: int
) -> None:
    """A model is predicted on a machine where none of its own operators was measured."""
    calibration = _calibration(slower)
    model, _ = read_model(database, NET, *HERE[:2], calibration=lambda _: calibration)
    for batch in BATCHES:
        kernels_s = slower * sum(operator_s(o.at(batch), threads) for o in NET.operators)
        expected = kernels_s + COST.per_run_s + COST.per_operator_s * len(NET.operators)
        assert pytest.approx(expected, rel=0.15) == model.predict(batch, threads, 0)


def test_calibration_narrows_interval_less_with_distance(database: Path) -> None:
    """A calibration narrows the interval, but less so the more the machines differ."""
    widths = []
    for slower in (None, 1.0, 2.0, 6.0):
        calibration = None if slower is None else _calibration(slower)
        known = {HERE: calibration}
        model, _ = read_model(database, NET, *HERE[:2], calibration=known.get)
        interval = model.interval(8, 1, 0)
        assert interval is not None
        widths.append(interval.high_s / interval.low_s)
    without, same, twice, six = widths
    assert same < twice < six < without


def test_measured_operator_does_not_widen_interval(database: Path) -> None:
    """A measured operator does not make the interval any wider."""
    calibration = {HERE: _calibration(2.0)}
    model, _ = read_model(database, NET, *HERE[:2], calibration=calibration.get)
    assert model.elsewhere is not None
    case = NET.operators[0].at(8)
    one = replace(model, known={(case, UNIT): 2.0 * operator_s(case, 1)})
    wide, narrow = (each.interval(8, 1, 0) for each in (model, one))
    assert wide is not None
    assert narrow is not None
    assert narrow.high_s / narrow.low_s <= wide.high_s / wide.low_s


def test_empty_calibration_leaves_interval_wide(database: Path) -> None:
    """A calibration whose budget ended before the first operator leaves the interval wide."""
    nothing = replace(_calibration(2.0), rows=())
    plain, empty = (
        read_model(database, NET, *HERE[:2], calibration={HERE: each}.get)[0]
        for each in (None, nothing)
    )
    assert not empty.calibrated
    for model in (plain, empty):
        interval, middle_s = model.interval(8, 1, 0), model.predict(8, 1, 0)
        assert interval is not None
        assert middle_s is not None
        assert interval.high_s / middle_s > 2


def test_operators_measured_elsewhere_keep_their_ratio_to_the_law(database: Path) -> None:
    """An operator that took three times what the law predicts elsewhere does so here too."""
    plain, _ = read_model(database, NET, *ORIGIN[:2])
    unit, slower = UNIT, 4.0
    elsewhere = {
        (o.at(batch), unit): 3 * operator_s(o.at(batch), 1)
        for o in NET.operators
        for batch in BATCHES
    }
    calibration = _calibration(slower)
    model, _ = read_model(database, NET, *HERE[:2], calibration=lambda _: calibration)
    model = replace(model, elsewhere=elsewhere)
    expected = slower * 3 * (plain.predict(8, 1, 0) or 0)
    assert pytest.approx(expected, rel=0.15) == model.predict(8, 1, 0)


def test_laws_learnt_on_this_processor_are_not_scaled() -> None:
    """Laws learnt on this processor are not scaled; those for other numbers of threads are."""
    fit = learnt().on_machine({4: COST})
    found = scaled(fit, _calibration(4.0, (1, 4)), {"dense": "dense"}, [UNIT, ThreadsAndGpu(2)])
    for threads, factor in ((1, 1.0), (2, 1.0)):
        key = "dense", ThreadsAndGpu(threads)
        np.testing.assert_allclose(found.laws[key], factor * fit.laws[key])
    four = "dense", ThreadsAndGpu(4)
    assert not np.allclose(found.laws[four], fit.laws[four])


def test_class_without_law_uses_law_of_its_family() -> None:
    """A class without a law gets that of its family if a reference operator of it was timed."""
    fit = learnt()
    lacking = replace(fit, laws={k: law for k, law in fit.laws.items() if k[0] != "dense"})
    assert ("dense", UNIT) not in lacking.laws
    assert ("any dense", UNIT) in lacking.laws
    found = scaled(lacking, _calibration(2.0), {"dense": "dense"}, [UNIT, ThreadsAndGpu(2)])
    assert ("dense", UNIT) in found.laws
    for key in (("any dense", UNIT), ("any dense", ThreadsAndGpu(2))):
        np.testing.assert_array_equal(found.laws[key], fit.laws[key])


def test_class_without_law_takes_as_long_as_its_reference_operator() -> None:
    """It may be tens of times slower than its family, in whose law arithmetic takes no time."""
    usual = ("Relu", "Exp", "Sqrt", "Tanh", "Erf", "Sigmoid")
    law = np.array([{"call": 1.0, WORK: 0.0}.get(by, 1e5) for by in BOUNDS["elementwise"]])
    fit = replace(learnt(), laws={(name, UNIT): law for name in ("any elementwise", *usual)})
    rows = []
    for name, ratio in (*((name, 1.0) for name in usual), ("Neg", 30.0)):
        for batch in (1, 8):
            case = Case.parse(name, "{}", f"f32[{batch},4096]>f32[{batch},4096]")
            parts_us = fit.operator_parts("Relu", "elementwise", UNIT, *_size(case))
            assert parts_us is not None
            rows.append(Alone(case, Setting(batch, 1), 0, ratio * parts_us.sum() / 1e6))
    calibration = Calibration(HERE, tuple(rows), {1: COST})
    classes = dict.fromkeys((*usual, "Neg"), "elementwise")
    found = scaled(fit, calibration, classes, [])
    for row in rows:
        parts_us = found.operator_parts(row.case.op_type, "elementwise", UNIT, *_size(row.case))
        assert parts_us is not None
        assert pytest.approx(1e6 * row.seconds, rel=0.2) == parts_us.sum()


def _size(case: Case) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what a law takes: the case's sizes, and that nothing is cold."""
    return np.array([sized(case).sizes]), np.zeros(1)


def test_calibration_of_other_thread_counts_is_kept() -> None:
    """An earlier calibration is kept for numbers of threads that are not timed again."""
    earlier, now = _calibration(1.0, (1, 2)), _calibration(3.0, (1,))
    cost = Overhead(9.0, 9.0)
    both = replace(now, overheads={1: cost, 2: cost}).with_others_of(earlier)
    of_two = tuple(row for row in earlier.rows if row.setting.threads == 2)
    assert of_two + now.rows == both.rows
    assert {1: cost, 2: COST} == both.overheads
    assert now == now.with_others_of(None)


def test_faster_and_slower_machines_widen_bounds_equally() -> None:
    """A machine that is faster by a factor widens the bounds as much as one that is slower."""
    assert 0 == scaling(np.ones(1)).item()
    low, high = scaling(np.array([0.25, 4.0])).tolist()
    assert pytest.approx(low) == high
    assert 0 < high < FOREIGN - CALIBRATED


def test_a_calibration_is_kept_by_machine_and_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stored beside the user's database, and the error for an invalid one names the fix."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert None is read_calibration(HERE)
    calibration = _calibration(2.0)
    path = write_calibration(calibration)
    assert tmp_path / "carpool" / "calibrations" == path.parent
    assert calibration == read_calibration(HERE)
    for other in (ORIGIN, HERE._replace(runtime="another")):
        assert None is read_calibration(other)
    path.write_text('{"form": 99}')
    with pytest.raises(ConfigError, match="carpool calibrate creates a new one"):
        read_calibration(HERE)
    assert path == calibration_path(HERE)


def test_roofs_are_the_highest_measured_rates() -> None:
    """Roofs come from the fastest product and from tensors within and beyond the caches."""
    small, large = graph([256, 256]).operators[0].at(1), graph([4096, 4096]).operators[0].at(1)
    rows = [Alone(case, Setting(1, 1), 0, 1e-3) for case in (small, large)]
    (found,) = roofs(Calibration(HERE, tuple(rows), {1: COST}))
    assert pytest.approx(2 * 4096 * 4096 / 1e-3 / 1e9) == found.f32_gflops
    assert 0 == found.i8_gops
    assert pytest.approx(4 * (256 + 256 * 256 + 256 + 256) / 1e-3 / 1e9) == found.cache_gb_s
    assert pytest.approx(4 * (4096 * 4096 + 3 * 4096) / 1e-3 / 1e9) == found.memory_gb_s
    assert pytest.approx(COST.per_run_s * 1e6) == found.per_run_us


def test_prediction_is_never_below_the_overhead_of_an_empty_run(database: Path) -> None:
    """Whatever the calibration, a run takes at least as long as one without operators."""
    calibration = _calibration(1e-6)
    model, _ = read_model(database, NET, *HERE[:2], calibration=lambda _: calibration)
    predicted_s = model.predict(1, 1, 0)
    assert predicted_s is not None
    assert COST.per_run_s <= predicted_s < run_s(NET, 1, 1)
    assert not math.isnan(predicted_s)
