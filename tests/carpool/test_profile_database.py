"""The profile database: profiles are read as written, operators stored once for all batches."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.errors import ConfigError
from carpool.onnx_graph.operator_graph import Case, Operator, TensorShape
from carpool.predictor.fit_database import read_fit, read_model, write_fit
from carpool.predictor.fitting import fit_profiles
from carpool.predictor.profile import OperatorRow, Profile, Setting
from carpool.predictor.profile_database import (
    case_id,
    case_ids,
    read_profiles,
    write_profile,
)
from carpool.predictor.profile_file import default_database, opened
from tests.carpool.profiles import BATCHES, ORIGIN, graph, profile, profiles, run_s

NET = graph([64, 128, 128, 10])

forms = st.builds(
    TensorShape,
    st.sampled_from(["f32", "i64", "bool"]),
    st.lists(st.integers(0, 48), max_size=4).map(tuple),
    st.booleans(),
)
cases = st.builds(
    Case,
    st.sampled_from(["Conv", "Gemm"]),
    st.sampled_from(["{}", json.dumps({"pads": [1, 1]})]),
    st.lists(forms, max_size=3).map(tuple),
    st.lists(forms, max_size=2).map(tuple),
)

symbolic_forms = st.tuples(
    st.sampled_from(["f32", "i64"]),
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), max_size=3).map(tuple),
    st.booleans(),
)
operators = st.builds(
    Operator,
    st.just("operator"),
    st.sampled_from(["Conv", "Gemm"]),
    st.just("{}"),
    st.lists(symbolic_forms, max_size=3).map(tuple),
    st.lists(symbolic_forms, max_size=2).map(tuple),
)


def test_profiles_round_trip_to_the_nanosecond(tmp_path: Path) -> None:
    """Runs and operators are read with their names, settings and times as written."""
    path, written = tmp_path / "profiles.sqlite", profile(NET)
    write_profile(path, written)
    (found,) = read_profiles(path)
    assert written.model == found.model
    assert written.fingerprint == found.fingerprint
    assert (written.load_s, written.memory_mb) == (found.load_s, found.memory_mb)
    assert [run.setting for run in written.runs] == [run.setting for run in found.runs]
    times = {(row.case, row.setting): row.median_s for row in found.operators}
    for row in written.operators:
        assert pytest.approx(row.median_s, abs=6e-10) == times[row.case, row.setting]


def test_an_operator_is_kept_once_for_all_batch_sizes(tmp_path: Path) -> None:
    """Three layers at five batch sizes with two numbers of threads are stored as three cases."""
    path = tmp_path / "profiles.sqlite"
    write_profile(path, profile(NET))
    with opened(path) as connection:
        assert (3,) == connection.execute("SELECT count(*) FROM cases").fetchone()
        count = connection.execute("SELECT count(*) FROM operators").fetchone()
    assert (3 * len(BATCHES) * 2,) == count


@given(found=st.lists(st.tuples(cases, st.sampled_from(BATCHES)), max_size=6, unique=True))
def test_any_shape_round_trips(found: list[tuple[Case, int]]) -> None:
    """Any shape is read as written: chance multiples of the batch, zeros, scalars, constants."""
    rows = tuple(OperatorRow(case, Setting(batch, 1), 1, 1e-6, 0.0) for case, batch in found)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profiles.sqlite"
        write_profile(path, Profile("net", ORIGIN, (), rows))
        (again,) = read_profiles(path)
    expected = {(row.case, row.setting) for row in rows}
    assert expected == {(row.case, row.setting) for row in again.operators}


@given(drawn=st.lists(operators, max_size=4, unique_by=lambda each: each.key))
def test_operators_are_found_at_every_batch_size(drawn: list[Operator]) -> None:
    """Operators are found at every batch size, whichever dimensions grow with the batch."""
    rows = {
        (operator.at(batch), Setting(batch, 1)): OperatorRow(
            operator.at(batch), Setting(batch, 1), 1, 1e-6, 0.0
        )
        for operator in drawn
        for batch in BATCHES
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profiles.sqlite"
        write_profile(path, Profile("net", ORIGIN, (), tuple(rows.values())))
        with opened(path) as connection:
            found = case_ids(connection, drawn, BATCHES)
            one_by_one = {
                (case_id(connection, case, setting.batch), setting.batch): case
                for case, setting in rows
            }
    assert one_by_one == found


def test_new_profile_replaces_that_of_the_same_model(tmp_path: Path) -> None:
    """A profile replaces that of the same model on the same hardware and runtime only."""
    path = tmp_path / "profiles.sqlite"
    write_profile(path, profile(NET))
    write_profile(path, profile(NET, 2.0))
    elsewhere = dataclasses.replace(profile(NET), origin=ORIGIN._replace(hardware="other"))
    write_profile(path, elsewhere)
    found = read_profiles(path)
    assert [ORIGIN, elsewhere.origin] == [each.origin for each in found]
    assert pytest.approx(profile(NET, 2.0).runs[0].median_s, abs=1e-9) == found[0].runs[0].median_s


def test_measured_operators_are_found_for_another_model(tmp_path: Path) -> None:
    """Layers of the same sizes in another network count as measured in all settings."""
    path = tmp_path / "profiles.sqlite"
    known = [profile(NET), *profiles(10)]
    for each in known:
        write_profile(path, each)
    write_fit(path, ORIGIN, fit_profiles(known), len(known))
    other = graph([64, 128, 128], "other")
    model, origin = read_model(path, other)
    assert ORIGIN == origin
    assert 2 * 2 * len(BATCHES) == len(model.known)


def test_only_runs_on_this_machine_correct_a_model(tmp_path: Path) -> None:
    """Only runs on this machine correct a model whose laws come from another machine."""
    path = tmp_path / "profiles.sqlite"
    known = profiles(10)
    for each in [profile(NET), *known]:
        write_profile(path, each)
    write_fit(path, ORIGIN, fit_profiles(known), len(known))
    here = ORIGIN._replace(hardware="here", runtime="later runtime")
    write_profile(path, dataclasses.replace(profile(NET, 3.0), origin=here))
    write_profile(path, dataclasses.replace(profile(NET, 9.0), origin=here._replace(hardware="no")))
    model, origin = read_model(path, NET, "here")
    assert ORIGIN == origin
    assert pytest.approx(run_s(NET, 4, 1, 3.0), rel=1e-3) == model.predict(4, 1, 0)
    model, _ = read_model(path, NET, "elsewhere")
    assert {} == model.runs
    assert 1.5 == model.load_s


def test_fit_of_another_version_is_refused_with_the_fix(tmp_path: Path) -> None:
    """A fit of another version is refused with the fix, as its coefficients are of other laws."""
    path = tmp_path / "profiles.sqlite"
    known = profiles(10)
    for each in known:
        write_profile(path, each)
    assert None is read_fit(path, ORIGIN)
    write_fit(path, ORIGIN, fit_profiles(known), len(known))
    assert read_fit(path, ORIGIN) is not None
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE fits SET document = replace(document, '\"form\":', '\"was\":')")
    assert None is read_fit(path, ORIGIN)
    with pytest.raises(ConfigError, match="run carpool profile on any model"):
        read_model(path, NET)


@pytest.mark.parametrize("version", [1, 99])
def test_another_version_is_refused(tmp_path: Path, version: int) -> None:
    """A database of an earlier or later version is refused with its version."""
    path = tmp_path / "profiles.sqlite"
    write_profile(path, profile(NET))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(ConfigError, match=f"version {version}"):
        read_profiles(path)


def test_packaged_database_is_small_and_complete() -> None:
    """The packaged database is below 2 MB and has enough complete profiles to learn from."""
    assert default_database().stat().st_size < 2_000_000
    found = read_profiles(default_database())
    assert 100 <= len(found)
    assert all(each.runs and each.operators for each in found)
