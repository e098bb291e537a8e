"""Operators measured alone: kept, composed, and honest about what was not measured."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from carpool.predictor import graph_json
from carpool.predictor.composition import Footprint, composed
from carpool.predictor.fit import Fit, ThreadsAndGpu
from carpool.predictor.fit_database import read_model
from carpool.predictor.graph import Graph, Operator
from carpool.predictor.graph_json import from_json, known_graph, to_json, write_graph
from carpool.predictor.intervals import measured
from carpool.predictor.latency_model import OperatorLatencyModel
from carpool.predictor.measured_operators import read_alone, read_overheads, write_alone
from carpool.predictor.profile import Alone, Origin, Overhead, Refused, Setting
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
    """What the test processor has taught."""
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
    """What a run takes here: its operators are slower, what it costs besides is not."""
    kernels_s = SLOW * sum(operator_s(o.at(batch), threads) for o in net.operators)
    return kernels_s + COST.per_run_s + COST.per_operator_s * len(net.operators)


def test_what_was_measured_alone_is_read_again(database: Path) -> None:
    """By origin; the same operator measured again replaces what was known."""
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


def test_a_refused_operator_is_not_to_be_measured_until_its_time_is_known(database: Path) -> None:
    """Nor does anything else follow from it."""
    case, setting = NET.operators[0].at(4), Setting(4, 1)
    plain, _ = read_model(database, NET, HERE.hardware, HERE.runtime)
    assert [0, 1, 2] == sorted(position for position, _ in plain.unmeasured([setting]))
    write_alone(database, HERE, [Refused(case, setting)], {})
    model, _ = read_model(database, NET, HERE.hardware, HERE.runtime)
    assert [1, 2] == sorted(position for position, _ in model.unmeasured([setting]))
    assert 3 == len(model.unmeasured([Setting(8, 1)]))
    assert plain.predict(4, 1, 0) == model.predict(4, 1, 0)
    write_alone(database, HERE, [Alone(case, setting, 0, 0.5)], {})
    model, _ = read_model(database, NET, HERE.hardware, HERE.runtime)
    assert (case, ThreadsAndGpu(1)) in model.known
    assert not model.refused


def test_a_database_of_an_earlier_version_knows_nothing_alone(database: Path) -> None:
    """Its tables are fewer, and it is read all the same."""
    with closing(sqlite3.connect(database)) as connection, connection:
        for table in ("measured_alone", "refused_alone", "overheads", "graphs"):
            connection.execute(f"DROP TABLE {table}")
    model, _ = read_model(database, NET, HERE.hardware, HERE.runtime)
    assert model.predict(4, 1, 0) is not None
    assert None is known_graph(database, database, {}, "")


def test_another_machine_is_predicted_from_operators_measured_on_it(database: Path) -> None:
    """The laws are of a processor four times as quick; what is measured here goes before them."""
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


def test_an_interval_of_measured_operators_is_that_of_composition(database: Path) -> None:
    """Where all is measured; it widens with the distance to measured batches."""
    write_alone(database, HERE, _alone(NET), {1: COST})
    model, _ = read_model(database, NET, HERE.hardware, HERE.runtime)
    middle, interval = model.predict(16, 1, 0), model.interval(16, 1, 0)
    assert interval is not None
    assert pytest.approx(measured(1)[1], abs=0.01) == math.log(interval.high_s / (middle or 1))
    far = model.interval(32, 1, 0)
    assert far is not None
    assert far.high_s / far.low_s > 1.05 * interval.high_s / interval.low_s


def test_what_was_not_measured_is_as_far_off_as_the_rest(database: Path) -> None:
    """Half of the operators tell by how much the machine is slower; the interval knows it."""
    write_alone(database, HERE, _alone(graph([100, 200, 300])), {1: COST})
    model, _ = read_model(database, NET, HERE.hardware, HERE.runtime)
    expected = _slow_s(NET, 8)
    assert pytest.approx(expected, rel=0.15) == model.predict(8, 1, 0)
    assert {"measured": 2, "predicted": 1} == {
        source: sum(each.source == source for each in model.sources(8, 1))
        for source in ("measured", "predicted")
    }
    assert [2] == [position for position, _ in model.unmeasured([Setting(8, 1)])]


def test_threads_that_no_profile_has_are_known_where_they_were_measured(database: Path) -> None:
    """Four threads, with what a run costs on them."""
    write_alone(database, HERE, _alone(NET, 4), {4: COST})
    model, _ = read_model(database, NET, HERE.hardware, HERE.runtime)
    assert pytest.approx(_slow_s(NET, 4, 4), rel=0.02) == model.predict(4, 4, 0)


def test_a_time_counts_if_as_much_was_moved_as_a_run_moves() -> None:
    """The weights of the others, and the largest results: in between, caches forget."""
    unit, alone, beside = ThreadsAndGpu(1), graph([500, 500]), graph([500, 500, 2000, 2000])
    case = alone.operators[0].at(1)
    assert [0, 16] == [Footprint(net).moved_mb(case, 1) for net in (alone, beside)]
    rows = [Alone(case, Setting(1, 1), moved_mb, 1.0 + moved_mb) for moved_mb in (0, 1, 16)]
    assert {(case, unit): 1.0} == composed(alone, rows)
    assert {(case, unit): 17.0} == composed(beside, rows)


def test_unknown_kinds_are_refused_by_name() -> None:
    """Neither a law of their class nor one of their family tells their time; measured, they do."""
    odd = replace(NET.operators[0], kind="com.microsoft.Odd")
    net = Graph("odd", [odd, *NET.operators[1:]])
    model = OperatorLatencyModel(net, learnt())
    assert None is model.predict(4, 1, 0)
    assert ["com.microsoft.Odd"] == model.untold()
    known = {(odd.at(4), ThreadsAndGpu(threads)): 0.5 for threads in (1, 2)}
    model = OperatorLatencyModel(net, learnt(), known)
    assert [] == model.untold()
    assert pytest.approx(0.5, rel=0.1) == model.predict(4, 1, 0)


def test_laws_of_ones_own_do_not_hide_those_of_the_package() -> None:
    """Classes that only the package's profiles have keep their laws."""
    own = Fit({}, learnt().per_run_s, learnt().per_operator_s, learnt().batches)
    assert None is OperatorLatencyModel(NET, own).predict(4, 1, 0)
    both = own.with_laws_of(learnt())
    expected = OperatorLatencyModel(NET, learnt()).predict(4, 1, 0)
    assert expected == OperatorLatencyModel(NET, both).predict(4, 1, 0)


def test_of_two_ways_the_slower_one_is_predicted(database: Path) -> None:
    """A run may take either: the interval begins with the quicker one's."""
    branch = replace(NET.operators[0], kind="If", attributes='"a"', otherwise='"b"')
    net = Graph("branching", [branch, *NET.operators[1:]])
    for slower in (0, 1):
        ways = [
            Alone(way.at(4), Setting(4, 1), 0, seconds)
            for at, way in enumerate(branch.ways)
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


def test_a_graph_is_remembered_as_long_as_its_file_is_the_same(
    tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By path, sizes of dimensions, runtime, processor, version, and what changes with the file."""
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
