"""Operators measured alone: storage, composition, and intervals where measurements are missing."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from carpool.onnx_graph.operator_graph import Graph, Operator
from carpool.predictor import graph_json
from carpool.predictor.composition import Footprint, composed
from carpool.predictor.fit import Fit, ThreadsAndGpu
from carpool.predictor.fit_database import read_model
from carpool.predictor.graph_json import from_json, known_graph, to_json, write_graph
from carpool.predictor.latency_model import OperatorLatencyModel
from carpool.predictor.measured_operators import read_alone, read_overheads, write_alone
from carpool.predictor.prediction_intervals import measured
from carpool.predictor.profile import Alone, Origin, Overhead, RefusedOperator, Setting
from carpool.predictor.profile_database import case_ids
from carpool.predictor.profile_file import opened
from tests.carpool.profiles import BATCHES, ORIGIN, graph, learnt, operator_s, taught

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("profiles")  # what is learnt from them is learnt once
HERE = Origin("another processor", ORIGIN.runtime)
NET = graph([100, 200, 300, 10], "fresh")
COST = Overhead(5e-6, 1e-6)
SLOW = 4.0  # how much slower the other processor is


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Database of what was learnt from the test processor."""
    return taught(tmp_path / "p.sqlite")


def _alone(net: Graph, threads: int = 1) -> list[Alone]:
    return [
        Alone(case, Setting(batch, threads), 0, seconds)
        for batch in BATCHES
        for operator in net.operators
        for case in [operator.at(batch)]
        for seconds in [SLOW * operator_s(case, threads)]
    ]


def _slow_s(net: Graph, batch: int, threads: int = 1) -> float:
    """Return the time of a run here, where operators are slower but overheads are not."""
    kernels_s = SLOW * sum(operator_s(o.at(batch), threads) for o in net.operators)
    return kernels_s + COST.per_run_s + COST.per_operator_s * len(net.operators)


def test_operator_measurements_round_trip(database: Path) -> None:
    """Measurements are read by origin, and a repeated one replaces the earlier one."""
    rows, overheads = _alone(NET), {1: COST}
    write_alone(database, HERE, rows, overheads)
    write_alone(database, HERE, rows, overheads)
    with opened(database) as connection:
        numbers = case_ids(connection, NET.operators, sorted({row.setting.batch for row in rows}))
        found = list(read_alone(connection, HERE, numbers))
        assert overheads == read_overheads(connection, HERE)
        assert not list(read_alone(connection, ORIGIN, numbers))
    by_place = {row[:2]: row for row in found}
    assert len(rows) == len(found)
    for row in rows:
        again = by_place[row[:2]]
        assert row[:3] == again[:3]
        assert pytest.approx(row.seconds, abs=1e-9) == again.seconds


def test_refusal_of_operator_ends_when_its_time_is_known(database: Path) -> None:
    """A refusal changes no predictions, and ends when the operator's time is known."""
    case, setting = NET.operators[0].at(4), Setting(4, 1)
    plain, _ = read_model(database, NET, HERE.hardware, HERE.runtime)
    assert [0, 1, 2] == sorted(position for position, _ in plain.unmeasured([setting]))
    write_alone(database, HERE, [RefusedOperator(case, setting)], {})
    model, _ = read_model(database, NET, HERE.hardware, HERE.runtime)
    assert [1, 2] == sorted(position for position, _ in model.unmeasured([setting]))
    assert 3 == len(model.unmeasured([Setting(8, 1)]))
    assert plain.predict(4, 1, 0) == model.predict(4, 1, 0)
    write_alone(database, HERE, [Alone(case, setting, 0, 0.5)], {})
    model, _ = read_model(database, NET, HERE.hardware, HERE.runtime)
    assert (case, ThreadsAndGpu(1)) in model.known
    assert not model.refused


def test_database_without_newer_tables_can_be_read(database: Path) -> None:
    """A database without the newer tables can still be read."""
    with closing(sqlite3.connect(database)) as connection, connection:
        for table in ("measured_alone", "refused_alone", "overheads", "graphs"):
            connection.execute(f"DROP TABLE {table}")
    model, _ = read_model(database, NET, HERE.hardware, HERE.runtime)
    assert model.predict(4, 1, 0) is not None
    assert None is known_graph(database, database, {}, "")


def test_operators_measured_here_override_laws_of_other_processor(database: Path) -> None:
    """Operators measured here override the laws of a processor that is four times as fast."""
    plain, origin = read_model(database, NET, HERE.hardware, HERE.runtime)
    assert ORIGIN == origin
    write_alone(database, HERE, _alone(NET), {1: COST})
    model, _ = read_model(database, NET, HERE.hardware, HERE.runtime)
    for batch in (1, 4, 6, 16):
        expected = _slow_s(NET, batch)
        assert pytest.approx(expected, rel=0.1) == model.predict(batch, 1, 0)
        wide, narrow = plain.interval(batch, 1, 0), model.interval(batch, 1, 0)
        assert wide is not None
        assert narrow is not None
        assert wide.high_s / wide.low_s > 3 * narrow.high_s / narrow.low_s


def test_interval_of_measured_operators_widens_with_batch_distance(database: Path) -> None:
    """If all operators are measured, the interval widens with the distance to their batches."""
    write_alone(database, HERE, _alone(NET), {1: COST})
    model, _ = read_model(database, NET, HERE.hardware, HERE.runtime)
    middle, interval = model.predict(16, 1, 0), model.interval(16, 1, 0)
    assert interval is not None
    assert pytest.approx(measured(1)[1], abs=0.01) == math.log(interval.high_s / (middle or 1))
    far = model.interval(32, 1, 0)
    assert far is not None
    assert far.high_s / far.low_s > 1.05 * interval.high_s / interval.low_s


def test_unmeasured_operators_are_scaled_by_the_measured_slowdown(database: Path) -> None:
    """The other operators are scaled by the slowdown of those that were measured."""
    write_alone(database, HERE, _alone(graph([100, 200, 300])), {1: COST})
    model, _ = read_model(database, NET, HERE.hardware, HERE.runtime)
    expected = _slow_s(NET, 8)
    assert pytest.approx(expected, rel=0.15) == model.predict(8, 1, 0)
    assert {"measured": 2, "predicted": 1} == {
        source: sum(each.source == source for each in model.sources(8, 1))
        for source in ("measured", "predicted")
    }
    assert [2] == [position for position, _ in model.unmeasured([Setting(8, 1)])]


def test_new_thread_count_is_predicted_from_measured_operators(database: Path) -> None:
    """Four threads are predicted from operators and overheads measured with four threads."""
    write_alone(database, HERE, _alone(NET, 4), {4: COST})
    model, _ = read_model(database, NET, HERE.hardware, HERE.runtime)
    assert pytest.approx(_slow_s(NET, 4, 4), rel=0.02) == model.predict(4, 4, 0)


@pytest.mark.parametrize(("factor", "share"), [(0.1, 0.5), (0.8, None), (1.2, None), (3.0, 1.5)])
def test_several_threads_take_at_least_their_share_and_little_longer_than_one(
    database: Path, factor: float, share: float | None
) -> None:
    """A sum of operators outside is an error of measurement."""
    one = _alone(NET)
    two = [r._replace(setting=Setting(r.setting.batch, 2), seconds=factor * r.seconds) for r in one]
    write_alone(database, HERE, [*one, *two], {1: COST, 2: COST})
    model, _ = read_model(database, NET, HERE.hardware, HERE.runtime)
    alone_s, run_s = model.predict(4, 1, 0), model.predict(4, 2, 0)
    assert alone_s is not None
    overhead_s = COST.per_run_s + COST.per_operator_s * len(NET.operators)
    kernels_s = factor * (alone_s - overhead_s)
    expected_s = kernels_s + overhead_s if share is None else share * alone_s
    assert pytest.approx(expected_s, rel=1e-6) == run_s


def test_times_count_only_if_enough_memory_was_moved_in_between() -> None:
    """Times count if as much memory was moved in between as the other operators of a run move."""
    unit, alone, beside = ThreadsAndGpu(1), graph([500, 500]), graph([500, 500, 2000, 2000])
    case = alone.operators[0].at(1)
    assert [0, 32] == [Footprint(net).moved_mb(case, 1) for net in (alone, beside)]
    few = graph([50, 4000])  # whose first operator has hardly any weights to find displaced
    assert 0 == Footprint(few).moved_mb(few.operators[0].at(1), 1)
    rows = [Alone(case, Setting(1, 1), moved_mb, 1.0 + moved_mb) for moved_mb in (0, 1, 32)]
    assert {(case, unit): 1.0} == composed(alone, rows)
    assert {(case, unit): 33.0} == composed(beside, rows)


def test_operator_without_law_needs_a_measurement() -> None:
    """An operator without a law of its class or family is predicted only if it was measured."""
    odd = replace(NET.operators[0], op_type="com.microsoft.Odd")
    net = Graph("odd", [odd, *NET.operators[1:]])
    model = OperatorLatencyModel(net, learnt())
    assert None is model.predict(4, 1, 0)
    assert ["com.microsoft.Odd"] == model.unknown_operators()
    known = {(odd.at(4), ThreadsAndGpu(threads)): 0.5 for threads in (1, 2)}
    model = OperatorLatencyModel(net, learnt(), known)
    assert [] == model.unknown_operators()
    assert pytest.approx(0.5, rel=0.1) == model.predict(4, 1, 0)


def test_users_laws_do_not_hide_packaged_laws() -> None:
    """Classes that occur only in the package's profiles keep their laws."""
    own = Fit({}, learnt().per_run_s, learnt().per_operator_s, learnt().batches)
    assert None is OperatorLatencyModel(NET, own).predict(4, 1, 0)
    both = own.with_laws_of(learnt())
    expected = OperatorLatencyModel(NET, learnt()).predict(4, 1, 0)
    assert expected == OperatorLatencyModel(NET, both).predict(4, 1, 0)


def test_slower_of_two_branches_is_predicted(database: Path) -> None:
    """As a run may take either branch, the interval begins with that of the faster one."""
    branch = replace(NET.operators[0], op_type="If", attributes='"a"', otherwise='"b"')
    net = Graph("branching", [branch, *NET.operators[1:]])
    for slower in (0, 1):
        ways = [
            Alone(way.at(4), Setting(4, 1), 0, seconds)
            for at, way in enumerate(branch.branches)
            for seconds in [0.5 if at == slower else 0.1]
        ]
        write_alone(database, HERE, [*ways, *_alone(NET)], {1: COST})
        model, _ = read_model(database, net, HERE.hardware, HERE.runtime)
        interval = model.interval(4, 1, 0)
        assert interval is not None
        assert pytest.approx(0.5, rel=0.01) == model.predict(4, 1, 0)
        assert 0.05 < interval.low_s < 0.1
        assert 0.5 < interval.high_s < 1
        assert [] == model.unmeasured([Setting(4, 1)])


def test_graph_is_cached_until_its_file_changes(
    tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph is cached by file, dimension sizes, runtime, processor and version."""
    path = tmp_path / "net.onnx"
    path.write_bytes(b"one")
    operator = Operator("a", "Relu", "{}", (("f32", ((0, 1), (7, 0)), False),), (("", (), False),))
    net = Graph("net", [*NET.operators, operator], 4)
    again = from_json(to_json(net))
    assert again is not None
    assert (net, net.fingerprint) == (again, again.fingerprint)
    assert (
        replace(net, operators=[operator]).fingerprint
        == replace(again, operators=[operator]).fingerprint
    )
    assert net.fingerprint != replace(again, operators=[operator]).fingerprint
    write_graph(database, path, {"a": 1}, "runtime", net)
    assert net == known_graph(database, path, {"a": 1}, "runtime")
    assert None is known_graph(database, path, {"a": 2}, "runtime")
    assert None is known_graph(database, path, {"a": 1}, "another")
    for name, value in (("processor", lambda: "another"), ("_READER", 2), ("__version__", "9")):
        with monkeypatch.context() as changed:
            changed.setattr(graph_json, name, value)
            assert None is known_graph(database, path, {"a": 1}, "runtime")
    path.write_bytes(b"two, longer")
    assert None is known_graph(database, path, {"a": 1}, "runtime")
