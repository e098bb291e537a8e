"""Sizes that meet an objective, and the rates they are held at."""

from __future__ import annotations

import math
from functools import cached_property

import pytest

from carpool.latency import Configuration
from carpool.latency.linear import Linear
from carpool.latency.table import Table
from carpool.scaling import Application, FunctionLoad, class_name
from scaler.planning.sizing import Objective, SizeTable, sizes


def window(batch: int, exec_s: float, objective: Objective) -> tuple[float, float] | None:
    """The rates of the only size of a table with one row, if it meets the objective."""
    found = sizes(Table({Configuration(batch, 2.0, 0.0): exec_s}), objective)
    return (found[0].min_rps, found[0].rate_rps) if found else None


def plain(slo_s: float, **others: float) -> Objective:
    """An objective without an offset."""
    return Objective(slo_s, **{"offset": 0.0, **others})  # type: ignore[arg-type]


def test_eq_1_as_printed_rounds_to_whole_batches() -> None:
    """INFless's example: 50 ms within 200 ms at batch 4 is held between 28 and 80."""
    assert (28, 80) == window(4, 0.05, plain(0.2, rounded=True))


def test_eq_1_is_not_rounded_unless_asked() -> None:
    """Exactly, the same size needs 4 requests in 150 ms, and takes 4 in 50 ms."""
    assert pytest.approx((4 / 0.15, 80)) == window(4, 0.05, plain(0.2))


@pytest.mark.parametrize("exec_s", [0.168, 0.175])
def test_rounding_can_turn_a_window_around(exec_s: float) -> None:
    """At batch 16 within 350 ms the printed least is 96 and the printed most is 80."""
    assert (96, 80) == window(16, exec_s, plain(0.35, rounded=True))
    low, high = window(16, exec_s, plain(0.35)) or (0, 0)
    assert low <= high


def test_a_batch_of_more_than_a_second_has_no_rounded_rate() -> None:
    """floor(1 / 1.2) is 0; exactly it takes 16 in 1.2 s."""
    assert None is window(16, 1.2, plain(3.0, rounded=True))
    assert pytest.approx(16 / 1.2) == (window(16, 1.2, plain(3.0)) or (0, 0))[1]


@pytest.mark.parametrize(
    ("batch", "exec_s", "meets"),
    [(2, 0.1, True), (2, 0.101, False), (1, 0.2, True), (1, 0.201, False)],
)
def test_a_batch_may_take_half_the_objective_and_a_request_all_of_it(
    batch: int, exec_s: float, *, meets: bool
) -> None:
    """The next batch collects while one runs; a single request does not wait for others."""
    assert meets == (window(batch, exec_s, plain(0.2)) is not None)


def test_a_single_request_needs_no_rate() -> None:
    """It is a full batch at once; the paper counts one a second."""
    assert 0 == (window(1, 0.15, plain(0.2)) or (9, 9))[0]
    assert 1 == (window(1, 0.15, plain(0.2, rounded=True)) or (9, 9))[0]


def test_the_offset_makes_executions_longer() -> None:
    """10 % on 92 ms is more than half of 200 ms; on 90 ms it lowers the most."""
    assert None is window(2, 0.092, Objective(0.2))
    assert pytest.approx(2 / 0.099) == (window(2, 0.09, Objective(0.2)) or (0, 0))[1]


@pytest.mark.parametrize("exec_s", [math.nan, math.inf, 0.0, -1.0])
def test_what_is_no_time_meets_no_objective(exec_s: float) -> None:
    """A broken model makes no size."""
    assert None is window(1, exec_s, Objective(0.2))


def test_batches_stay_within_the_functions_largest() -> None:
    """max_batch bounds what is tried."""
    found = sizes(Linear(0.01, 0.001), Objective(0.2, max_batch=3))
    assert [1, 2, 3] == [size.batch for size in found]


def test_an_instance_without_a_core_is_none() -> None:
    """A plan wants some of a core for every class."""
    assert () == sizes(Linear(0.01, 0.001, cpu=0.0, gpu=10.0), Objective(0.2))


def test_the_tightest_application_counts() -> None:
    """The objective is the tightest of all applications."""
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
def test_names_are_what_openfaas_admits(size: tuple[int, float, float], name: str) -> None:
    """Lower case, digits and inner dashes."""
    assert name == class_name(*size)


def test_a_table_computes_a_models_sizes_once() -> None:
    """The same model and objective give the same objects, another objective others."""
    table, model = SizeTable(), Linear(0.01, 0.001)
    first = table.of(model, Objective(0.2))
    assert first is table.of(model, Objective(0.2))
    assert first is not table.of(model, Objective(0.3))
    assert first is not table.of(Linear(0.01, 0.001), Objective(0.2))


class Counted(Linear):
    """A linear model that notes what it is asked."""

    @cached_property
    def asked(self) -> list[tuple[int, float, float, float]]:
        """Batch, cores, GPU and quantile."""
        return []

    def predict(self, batch: int, cpu: float, gpu: float, quantile: float = 0.5) -> float | None:
        """As `Linear.predict`."""
        self.asked.append((batch, cpu, gpu, quantile))
        return super().predict(batch, cpu, gpu, quantile)


def test_objectives_of_one_percentile_share_what_is_predicted() -> None:
    """A thousand functions on one model ask it as often as one, whatever their objectives."""
    table, model = SizeTable(), Counted(0.01, 0.001)
    sizes_of = [table.of(model, Objective(0.1 + number / 1e4)) for number in range(100)]
    assert sizes_of[-1] == sizes(Linear(0.01, 0.001), Objective(0.1099))
    assert len(set(model.asked)) == len(model.asked)
    table.of(model, Objective(0.1, percentile=0.5))
    assert {0.99, 0.5} == {quantile for *_, quantile in model.asked}
