"""Sizes that meet an objective, and the ranges of their rates."""

from __future__ import annotations

import math
from functools import cached_property

import pytest

from carpool.latency import Configuration
from carpool.latency.linear import Linear
from carpool.latency.table import Table
from carpool.scaling import Application, FunctionLoad, class_name
from carpool.sizing import Objective, SizeTable, sizes


def window(batch: int, exec_s: float, objective: Objective) -> tuple[float, float] | None:
    """Return the rates of the only size of a one-row table; None if it misses the objective."""
    found = sizes(Table({Configuration(batch, 2.0, 0.0): exec_s}), objective)
    return (found[0].min_rps, found[0].rate_rps) if found else None


def plain(slo_s: float, **others: float) -> Objective:
    """Return an objective without an offset."""
    return Objective(slo_s, **{"offset": 0.0, **others})  # type: ignore[arg-type]


def test_eq_1_as_printed_rounds_to_whole_batches() -> None:
    """INFless's example of 50 ms within 200 ms at batch 4 has rates between 28 and 80."""
    assert (28, 80) == window(4, 0.05, plain(0.2, rounded=True))


def test_eq_1_is_not_rounded_unless_asked() -> None:
    """Without rounding, the same size has rates from 4 in 150 ms to 4 in 50 ms."""
    assert pytest.approx((4 / 0.15, 80)) == window(4, 0.05, plain(0.2))


@pytest.mark.parametrize("exec_s", [0.168, 0.175])
def test_rounding_can_invert_rate_range(exec_s: float) -> None:
    """At batch 16 within 350 ms the printed minimum is 96 and the printed maximum 80."""
    assert (96, 80) == window(16, exec_s, plain(0.35, rounded=True))
    low, high = window(16, exec_s, plain(0.35)) or (0, 0)
    assert low <= high


def test_batch_longer_than_one_second_has_no_rounded_rate() -> None:
    """floor(1 / 1.2) is 0, whereas the exact rate is 16 in 1.2 s."""
    assert None is window(16, 1.2, plain(3.0, rounded=True))
    assert pytest.approx(16 / 1.2) == (window(16, 1.2, plain(3.0)) or (0, 0))[1]


@pytest.mark.parametrize(
    ("batch", "exec_s", "meets"),
    [(2, 0.1, True), (2, 0.101, False), (1, 0.2, True), (1, 0.201, False)],
)
def test_a_batch_may_take_half_the_objective_and_a_request_all_of_it(
    batch: int, exec_s: float, *, meets: bool
) -> None:
    """A batch may take half the objective, as the next one fills; a single request all of it."""
    assert meets == (window(batch, exec_s, plain(0.2)) is not None)


def test_a_single_request_needs_no_rate() -> None:
    """A single request is a full batch and needs no rate; as printed, it needs one per second."""
    assert 0 == (window(1, 0.15, plain(0.2)) or (9, 9))[0]
    assert 1 == (window(1, 0.15, plain(0.2, rounded=True)) or (9, 9))[0]


def test_the_offset_makes_executions_longer() -> None:
    """An offset of 10 % excludes 92 ms within 200 ms, and lowers the highest rate at 90 ms."""
    assert None is window(2, 0.092, Objective(0.2))
    assert pytest.approx(2 / 0.099) == (window(2, 0.09, Objective(0.2)) or (0, 0))[1]


@pytest.mark.parametrize("exec_s", [math.nan, math.inf, 0.0, -1.0])
def test_invalid_execution_times_give_no_size(exec_s: float) -> None:
    """Invalid execution times give no size."""
    assert None is window(1, exec_s, Objective(0.2))


def test_batches_stay_within_max_batch() -> None:
    """``max_batch`` limits the batches of the sizes."""
    found = sizes(Linear(0.01, 0.001), Objective(0.2, max_batch=3))
    assert [1, 2, 3] == [size.batch for size in found]


def test_configuration_without_cores_is_no_size() -> None:
    """A configuration without cores gives no size, as plans need some for every class."""
    assert () == sizes(Linear(0.01, 0.001, cpu=0.0, gpu=10.0), Objective(0.2))


def test_objective_is_that_of_tightest_application() -> None:
    """The objective of a function is the tightest of its applications."""
    apps = (Application("web", 0.3, 1.0), Application("vr", 0.1, 1.0))
    load = FunctionLoad("f", Linear(0.01, 0), 0.2, 0.95, 8, apps)
    assert Objective(0.1, 0.95, 8, 0.1) == Objective.of(load, 0.1)


@pytest.mark.parametrize(
    ("size", "name"),
    [
        ((4, 2.0, 10.0), "b4-c2-g10"),
        ((1, 0.5, 0.0), "b1-c0p5"),
        ((1, 1.55, 100 / 24), "b1-c1p55-g4p167"),
    ],
)
def test_class_names_are_valid_for_openfaas(size: tuple[int, float, float], name: str) -> None:
    """Class names have only lower-case letters, digits and inner dashes."""
    assert name == class_name(*size)


def test_sizes_of_model_are_computed_once() -> None:
    """The same model and objective give the same object, others give another one."""
    table, model = SizeTable(), Linear(0.01, 0.001)
    first = table.of(model, Objective(0.2))
    assert first is table.of(model, Objective(0.2))
    assert first is not table.of(model, Objective(0.3))
    assert first is not table.of(Linear(0.01, 0.001), Objective(0.2))


class Counted(Linear):
    """A linear model that records its calls."""

    @cached_property
    def asked(self) -> list[tuple[int, float, float, float]]:
        """Batch, cores, GPU and quantile of each call."""
        return []

    def predict(self, batch: int, cpu: float, gpu: float, quantile: float = 0.5) -> float | None:
        """See `Linear.predict`."""
        self.asked.append((batch, cpu, gpu, quantile))
        return super().predict(batch, cpu, gpu, quantile)


def test_objectives_of_same_percentile_share_predictions() -> None:
    """Functions with one model and percentile share its predictions, whatever their objectives."""
    table, model = SizeTable(), Counted(0.01, 0.001)
    sizes_of = [table.of(model, Objective(0.1 + number / 1e4)) for number in range(100)]
    assert sizes_of[-1] == sizes(Linear(0.01, 0.001), Objective(0.1099))
    assert len(set(model.asked)) == len(model.asked)
    table.of(model, Objective(0.1, percentile=0.5))
    assert {0.99, 0.5} == {quantile for *_, quantile in model.asked}
