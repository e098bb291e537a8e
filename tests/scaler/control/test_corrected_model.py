"""Latency models corrected by measured batches: bounds, robustness and drift alarms."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.latency.linear import Linear
from carpool.plan import InstanceClass, Plan, Route
from carpool.sizing import Objective
from carpool.sync import ClassReport, FrontReport
from scaler.control.calibration.corrected_model import (
    MOST_BASE_S,
    MOST_FACTOR,
    CorrectedModel,
    Correction,
)
from scaler.control.class_function import Status
from scaler.control.controller import Controller
from scaler.control.dependencies import Dependencies
from tests.scaler.loads import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MODEL = Linear(0.01, 0.002)
SIZE = (1.0, 0.0)


def seen(
    took_s: Callable[[int], float], sizes: Iterable[int], *, per_report: int = 4
) -> Correction:
    """Return a correction after one report per size, with batches of ``took_s(size)`` seconds."""
    correction = Correction()
    for size in sizes:
        correction.observe(MODEL, SIZE, per_report, per_report * size, per_report * took_s(size))
    correction.of(MODEL)
    return correction


def plain_s(batch: int) -> float:
    """Return the prediction of the model."""
    predicted_s = MODEL.predict(batch, *SIZE)
    assert predicted_s is not None
    return predicted_s


def corrected_s(correction: Correction, batch: int) -> float:
    """Return the prediction of the corrected model."""
    predicted_s = correction.of(MODEL).predict(batch, *SIZE)
    assert predicted_s is not None
    return predicted_s


def test_accurate_model_is_not_corrected() -> None:
    """An accurate model stays the same object, as planners cache results by it."""
    correction = seen(plain_s, [1, 4, 8] * 10)
    assert MODEL is correction.of(MODEL)
    assert ("", "") == (correction.alarm(), correction.news())
    assert 0.02 == correction.error


def test_few_reports_give_no_correction() -> None:
    """Seven slow reports give neither a correction nor an error."""
    correction = seen(lambda size: 2 * plain_s(size), [4] * 7)
    assert MODEL is correction.of(MODEL)
    assert correction.error is None


@pytest.mark.parametrize(("factor", "base_s"), [(1.3, 0.0), (0.6, 0.0), (1.0, 0.004), (1.2, 0.01)])
def test_factor_and_base_are_found(factor: float, base_s: float) -> None:
    """A slower machine and a constant overhead are corrected at measured and other batch sizes."""
    correction = seen(lambda size: factor * plain_s(size) + base_s, [1, 2, 8, 16] * 15)
    for batch in (1, 4, 16, 32):
        expected_s = factor * plain_s(batch) + base_s
        assert pytest.approx(expected_s, rel=0.05) == corrected_s(correction, batch)


@given(
    took=st.lists(
        st.tuples(
            st.integers(-1, 40),
            st.integers(-1, 300),
            st.one_of(st.floats(), st.floats(1e-6, 1e6)),
        ),
        max_size=80,
    )
)
def test_corrections_are_bounded_for_any_reports(
    took: list[tuple[int, int, float]],
) -> None:
    """Factor and base stay within their bounds, and predictions grow with the batch."""
    correction = Correction()
    for batches, item_count, exec_s in took:
        correction.observe(MODEL, SIZE, batches, item_count, exec_s)
    predicted = [corrected_s(correction, batch) for batch in range(1, 40)]
    assert 1 / MOST_FACTOR <= correction.factor <= MOST_FACTOR
    assert 0 <= correction.base_s <= MOST_BASE_S
    assert sorted(predicted) == predicted
    assert correction.error is None or 0 < correction.error <= 1
    for batch, found_s in enumerate(predicted, start=1):
        assert plain_s(batch) / MOST_FACTOR <= found_s * 1.000001
        assert found_s <= plain_s(batch) * MOST_FACTOR + MOST_BASE_S


@given(seed=st.integers(0, 10_000), slow=st.floats(3, 100))
def test_slow_outliers_have_little_effect(seed: int, slow: float) -> None:
    """One far too slow report in ten, as after a pause, changes predictions by 10 % at most."""
    draw = random.Random(seed)
    sizes = [draw.choice([1, 2, 4, 8]) for _ in range(60)]
    late = set(draw.sample(range(60), 6))
    numbers = iter(range(60))
    correction = seen(lambda size: plain_s(size) * (slow if next(numbers) in late else 1), sizes)
    assert pytest.approx(plain_s(4), rel=0.1) == corrected_s(correction, 4)


@pytest.mark.parametrize("noise", [0.01, 0.06, 0.25])
def test_the_error_follows_the_noise(noise: float) -> None:
    """The error is a step that covers 95 of 100 batches, and is larger for noisier batches."""
    draw = random.Random(7)
    correction = seen(lambda size: plain_s(size) * draw.uniform(1 - noise, 1 + noise), [4] * 64)
    assert correction.error is not None
    assert noise * 0.8 <= correction.error <= 2 * noise + 0.01


def test_error_falls_with_hysteresis() -> None:
    """The error rises at once, and falls only if the next lower step suffices with a margin."""
    correction = seen(plain_s, [4] * 64)
    correction.observe(MODEL, SIZE, 16, 64, 16 * plain_s(4) * 1.09)
    found = []
    for _ in range(80):
        correction.of(MODEL)
        found.append(correction.error)
        correction.observe(MODEL, SIZE, 4, 16, 4 * plain_s(4))
    assert len({*found}) <= 3
    assert 0.02 == found[-1]


def test_drift_alarm_lasts_until_drift_ends() -> None:
    """An alarm begins at 1.5 times the prediction, and small changes around it do not end it."""
    correction = seen(lambda size: 1.6 * plain_s(size), [1, 2, 4, 8] * 16)
    assert "measure its latency model again" in correction.alarm()
    for _ in range(64):
        correction.observe(MODEL, SIZE, 4, 16, 4 * 1.4 * plain_s(4))
    correction.of(MODEL)
    assert correction.alarm()
    for size in [1, 8] * 32:
        correction.observe(MODEL, SIZE, 4, 4 * size, 4 * plain_s(size))
    correction.of(MODEL)
    assert not correction.alarm()


def test_alarm_text_is_stable_for_small_changes() -> None:
    """The text of an alarm stays the same until its numbers are off by a quarter."""
    draw = random.Random(5)
    correction = seen(lambda size: 1.8 * plain_s(size), [1, 2, 4, 8] * 16)
    said, news = {correction.alarm()}, [correction.news()]
    for _ in range(200):
        size = draw.choice([1, 2, 4, 8])
        took_s = plain_s(size) * draw.uniform(1.6, 2.0)
        correction.observe(MODEL, SIZE, 4, 4 * size, 4 * took_s)
        correction.of(MODEL)
        said.add(correction.alarm())
        news.append(correction.news())
    assert 1 == len(said)
    assert 1 == len(list(filter(None, news)))


def test_faster_batches_raise_no_alarm() -> None:
    """Batches faster than predicted correct the model without an alarm.

    As with a share of a core whose quota a low load never uses up.
    """
    correction = seen(lambda size: 0.5 * plain_s(size), [1, 2, 4, 8] * 16)
    assert not correction.alarm()
    assert pytest.approx(0.5 * plain_s(8), rel=0.05) == corrected_s(correction, 8)


def test_fractional_core_is_not_corrected_to_be_faster() -> None:
    """A share of a core is never corrected to be faster than its model.

    Its quota lasts at low load, but not under the load that is planned for.
    """
    correction = Correction()
    for _ in range(40):
        correction.observe(MODEL, (0.25, 0.0), 4, 16, 4 * 0.65 * plain_s(4))
    assert MODEL is correction.of(MODEL)
    for _ in range(64):
        correction.observe(MODEL, (0.25, 0.0), 4, 16, 4 * 1.4 * plain_s(4))
    assert pytest.approx(1.4 * plain_s(4), rel=0.05) == corrected_s(correction, 4)


def test_alarm_reports_correction_beyond_bounds() -> None:
    """Tenfold execution times are corrected up to the bounds, and the alarm says so."""
    correction = seen(lambda size: 10 * plain_s(size), [1, 4, 8, 16] * 16)
    assert "more than can be corrected" in correction.alarm()
    assert 1.0 == correction.error


def test_model_object_is_kept_for_small_corrections() -> None:
    """Changes of 1 % keep the same object, as planners cache tables by the model's identity."""
    draw = random.Random(3)
    correction = seen(lambda size: 1.3 * plain_s(size), [1, 4, 8] * 20)
    before = correction.of(MODEL)
    assert isinstance(before, CorrectedModel)
    correction.news()
    for _ in range(100):
        size = draw.choice([1, 4, 8])
        took_s = 1.3 * plain_s(size) * draw.uniform(0.99, 1.01)
        correction.observe(MODEL, SIZE, 4, 4 * size, 4 * took_s)
        assert before is correction.of(MODEL)
    assert not correction.news()


def test_corrected_model_keeps_other_properties() -> None:
    """Sizes, resources, loading time and unknown predictions are those of the model."""
    own = Linear(0.01, 0.002, cpu=2.0, load_s=3.0, memory_mb=100.0)
    corrected = CorrectedModel(own, 2.0, 0.001)
    assert list(own.configurations(4)) == list(corrected.configurations(4))
    assert own.resources(4, 2, 0) == corrected.resources(4, 2, 0)
    assert own.load_s == corrected.load_s
    assert corrected.predict(0, 1, 0) is None


def test_new_model_starts_without_correction() -> None:
    """Another model starts without a correction, error or alarm."""
    correction = seen(lambda size: 2 * plain_s(size), [1, 4, 8] * 20)
    other = Linear(0.05, 0.0)
    assert other is correction.of(other)
    assert correction.error is None
    assert not correction.alarm()


def test_a_correction_survives_a_restart() -> None:
    """Factor and base apply at once after a restart, and later measurements replace them."""
    before = seen(lambda size: 1.4 * plain_s(size), [1, 4, 8] * 20)
    after = Correction()
    after.absorb(before.to_dict())
    assert pytest.approx(corrected_s(before, 4), rel=0.01) == corrected_s(after, 4)
    for size in [1, 4, 8] * 20:
        after.observe(MODEL, SIZE, 4, 4 * size, 4 * plain_s(size))
    assert pytest.approx(plain_s(4), rel=0.05) == corrected_s(after, 4)


def test_restored_correction_is_bounded() -> None:
    """A correction restored from a store is limited to the bounds."""
    correction = Correction()
    correction.absorb([1e9, -1.0])
    assert (MOST_FACTOR, 0.0) == (correction.factor, correction.base_s)
    assert math.isfinite(corrected_s(correction, 1))


def test_planning_offset_is_known_error() -> None:
    """The offset is the known error, or the policy's own while none is known."""
    unknown = load(100.0)
    assert 0.1 == Objective.of(unknown, 0.1).offset
    assert 0.02 == Objective.of(replace(unknown, error=0.02), 0.1).offset


LABELS = {"com.carpool.slo": "200ms", "com.carpool.scale.policy": "infless"}
KIND = InstanceClass("b8-c1", cpu=1.0, batch_size=8, replicas=1)
PLAN = Plan("f", 1, "infless", (KIND,), (Route("*", {"b8-c1": 1.0}, 0.01),))


def controller(*, named: bool = True) -> Controller:
    """Return the controller of a function with a plan of one class."""
    status = Status.of({"name": "f", "image": "x", "replicas": 1, "labels": LABELS})
    found = Controller(status, Dependencies(models={"f": MODEL} if named else None))
    found.follow(PLAN, 0.0)
    return found


def report(factor: float, number: int, name: str = "b8-c1") -> FrontReport:
    """Return a report of four batches of eight, ``factor`` times as slow as predicted."""
    executed = ClassReport(name, 4, 32, 4 * factor * plain_s(8), factor * 0.01, factor * 0.002)
    return FrontReport("f", "a" * 8, number, classes=(executed,))


def test_function_is_planned_with_corrected_model() -> None:
    """A load has the corrected model and its error; decisions and notes report the drift."""
    found = controller()
    for number in range(20):
        found.reported(report(1.8, number), number / 2, number / 2)
    seen_load = found.load(10.0)
    assert seen_load is not None
    assert pytest.approx(1.8 * plain_s(8), rel=0.05) == seen_load.model.predict(8, 1.0, 0.0)
    assert 0.02 == seen_load.error
    found.step(10.0, 10.0)
    assert any("measure its latency model again" in note for note in found.notes)
    assert any("Measured: batches take" in decision.text for decision in found.decisions)


def test_batches_of_unknown_classes_are_ignored() -> None:
    """Batches of a class that is not in the plan are ignored, as its size is unknown."""
    found = controller()
    for number in range(20):
        found.reported(report(1.8, number, "gone"), number / 2, number / 2)
    seen_load = found.load(10.0)
    assert seen_load is not None
    assert MODEL is seen_load.model
    assert seen_load.error is None


def test_a_learned_model_is_not_corrected_twice() -> None:
    """A model learned from the same batches is not corrected, but its error is reported."""
    found = controller(named=False)
    for number in range(20):
        found.reported(report(1.8, number), number / 2, number / 2)
        found.load(number / 2)
    seen_load = found.load(10.0)
    assert seen_load is not None
    assert isinstance(seen_load.model, Linear)
    assert 0.02 == seen_load.error


def test_a_correction_is_kept_with_its_function() -> None:
    """A correction is saved with its function and applies to the first load after a restart."""
    before, after = controller(), controller()
    for number in range(20):
        before.reported(report(1.4, number), number / 2, number / 2)
    before.load(10.0)
    after.absorb(before.to_dict(), None, 0.0)
    seen_load = after.load(0.0)
    assert seen_load is not None
    assert pytest.approx(1.4 * plain_s(8), rel=0.05) == seen_load.model.predict(8, 1.0, 0.0)
