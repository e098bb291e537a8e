"""The profile database: measured operators and models in an SQLite file.

A model that is measured again on the same hardware and runtime replaces what was known of it there.
Times are kept as they were measured; what follows from them is the predictor's business.
"""

from __future__ import annotations

import contextlib
import sqlite3
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carpool.errors import ConfigError, Problem
from carpool.latency.operators import Case
from carpool.latency.profile import OperatorRow, Origin, Profile, RunRow, Setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["default_database", "opened", "read_profiles", "write_profile"]

_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS models (
    id INTEGER PRIMARY KEY, model TEXT NOT NULL, fingerprint TEXT NOT NULL,
    hardware TEXT NOT NULL, runtime TEXT NOT NULL, device TEXT NOT NULL,
    load_s REAL NOT NULL, memory_mb REAL NOT NULL,
    UNIQUE (model, hardware, runtime, device));
CREATE TABLE IF NOT EXISTS runs (
    model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE, batch INTEGER NOT NULL,
    threads INTEGER NOT NULL, gpu REAL NOT NULL, median_s REAL NOT NULL, p90_s REAL NOT NULL,
    p95_s REAL NOT NULL, p99_s REAL NOT NULL, spread_s REAL NOT NULL, samples INTEGER NOT NULL,
    PRIMARY KEY (model, batch, threads, gpu)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cases (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, attributes TEXT NOT NULL, shapes TEXT NOT NULL,
    UNIQUE (kind, attributes, shapes));
CREATE TABLE IF NOT EXISTS operators (
    model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE,
    "case" INTEGER NOT NULL REFERENCES cases, batch INTEGER NOT NULL, threads INTEGER NOT NULL,
    gpu REAL NOT NULL, count INTEGER NOT NULL, median_s REAL NOT NULL, spread_s REAL NOT NULL,
    PRIMARY KEY (model, "case", batch, threads, gpu)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_case ON operators ("case", threads, gpu);
CREATE TABLE IF NOT EXISTS fits (
    hardware TEXT NOT NULL, runtime TEXT NOT NULL, device TEXT NOT NULL, models INTEGER NOT NULL,
    document TEXT NOT NULL, PRIMARY KEY (hardware, runtime, device)) WITHOUT ROWID;
"""


def default_database() -> Path:
    """The database that comes with the package."""
    return Path(str(resources.files("carpool") / "latency" / "profiles.sqlite"))


def read_profiles(path: Path) -> list[Profile]:
    """Everything in a database.

    Raises:
        ConfigError: the file is missing, or no profile database.
    """
    with opened(path) as connection:
        runs = _grouped(connection.execute("SELECT * FROM runs ORDER BY 1, 3, 2, 4"))
        operators = _grouped(
            connection.execute(
                "SELECT o.model, kind, attributes, shapes, batch, threads, gpu, count, median_s,"
                ' spread_s FROM operators o JOIN cases c ON c.id = o."case" ORDER BY 1, 6, 5, c.id'
            )
        )
        models = connection.execute(
            "SELECT id, model, fingerprint, hardware, runtime, device, load_s, memory_mb"
            " FROM models ORDER BY id"
        ).fetchall()
    cases: dict[tuple[str, str, str], Case] = {}
    return [
        Profile(
            model,
            Origin(hardware, runtime, device),
            tuple(RunRow(Setting(*row[:3]), *row[3:]) for row in runs.get(number, ())),
            tuple(_operator(row, cases) for row in operators.get(number, ())),
            load_s,
            memory_mb,
            fingerprint,
        )
        for number, model, fingerprint, hardware, runtime, device, load_s, memory_mb in models
    ]


def write_profile(path: Path, profile: Profile) -> None:
    """Put a model's measurements into a database, which is made if it is missing.

    Raises:
        ConfigError: the file is no profile database, or cannot be written.
    """
    with opened(path, write=True) as connection:
        key = (profile.model, *profile.origin)
        connection.execute(
            "DELETE FROM models WHERE (model, hardware, runtime, device) = (?, ?, ?, ?)", key
        )
        number = connection.execute(
            "INSERT INTO models (model, hardware, runtime, device, fingerprint, load_s, memory_mb)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*key, profile.fingerprint, profile.load_s, profile.memory_mb),
        ).lastrowid
        connection.executemany(
            "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (number, *r.setting, r.median_s, r.p90_s, r.p95_s, r.p99_s, r.spread_s, r.samples)
                for r in profile.runs
            ],
        )
        for row in profile.operators:
            _write_operator(connection, number, row)


def _write_operator(connection: sqlite3.Connection, number: int | None, row: OperatorRow) -> None:
    key = (row.case.kind, row.case.attributes, row.case.shapes)
    connection.execute(
        "INSERT OR IGNORE INTO cases (kind, attributes, shapes) VALUES (?, ?, ?)", key
    )
    connection.execute(
        "INSERT INTO operators SELECT ?, id, ?, ?, ?, ?, ?, ? FROM cases"
        " WHERE (kind, attributes, shapes) = (?, ?, ?)",
        (number, *row.setting, row.count, row.median_s, row.spread_s, *key),
    )


def _operator(row: Sequence[Any], cases: dict[tuple[str, str, str], Case]) -> OperatorRow:
    key = (row[0], row[1], row[2])
    if key not in cases:
        cases[key] = Case.parse(*key)
    return OperatorRow(cases[key], Setting(*row[3:6]), *row[6:])


def _grouped(rows: Iterable[Sequence[Any]]) -> dict[int, list[Sequence[Any]]]:
    found: dict[int, list[Sequence[Any]]] = {}
    for number, *rest in rows:
        found.setdefault(number, []).append(tuple(rest))
    return found


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if version != _VERSION and (version or tables):
        given = f"version {version}"
        raise ConfigError(
            [Problem(str(path), given, f"a profile database of version {_VERSION}", "make it anew")]
        )


@contextlib.contextmanager
def opened(path: Path, *, write: bool = False) -> Iterator[sqlite3.Connection]:
    """A connection to a profile database, in one transaction.

    Raises:
        ConfigError: the file is missing, no profile database, or cannot be written.
    """
    if not write and not path.is_file():
        raise ConfigError([Problem("database", str(path), "an existing profile database")])
    with _refusing(path), _connected(path, write=write) as connection:
        _check_version(connection, path)
        if write:
            connection.executescript(_SCHEMA)
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        yield connection


@contextlib.contextmanager
def _connected(path: Path, *, write: bool) -> Iterator[sqlite3.Connection]:
    mode = "rwc" if write else "ro"
    quoted = str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    connection = sqlite3.connect(f"file:{quoted}?mode={mode}", uri=True)
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        with connection:
            yield connection
    finally:
        connection.close()


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, ValueError) as error:
        raise ConfigError([Problem(str(path), str(error), "a profile database")]) from error
