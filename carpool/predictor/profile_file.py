"""The file of a profile database: copied from the package's own, opened, or refused with a reason.

`profile_database` defines the meaning of its tables.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["begin_database", "default_database", "has_table", "opened"]

_VERSION = 2
_SCHEMA = """
CREATE TABLE IF NOT EXISTS models (
    id INTEGER PRIMARY KEY, model TEXT NOT NULL, fingerprint TEXT NOT NULL,
    hardware TEXT NOT NULL, runtime TEXT NOT NULL, device TEXT NOT NULL,
    load_s REAL NOT NULL, memory_mb REAL NOT NULL,
    UNIQUE (model, hardware, runtime, device));
CREATE TABLE IF NOT EXISTS runs (
    model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE, batch INTEGER NOT NULL,
    threads INTEGER NOT NULL, gpu REAL NOT NULL, median_ns INTEGER NOT NULL,
    p90_ns INTEGER NOT NULL, p95_ns INTEGER NOT NULL, p99_ns INTEGER NOT NULL,
    spread_ns INTEGER NOT NULL, samples INTEGER NOT NULL,
    PRIMARY KEY (model, batch, threads, gpu)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS kinds (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, attributes TEXT NOT NULL,
    UNIQUE (kind, attributes));
CREATE TABLE IF NOT EXISTS cases (
    kind INTEGER NOT NULL REFERENCES kinds, shapes TEXT NOT NULL, id INTEGER NOT NULL,
    PRIMARY KEY (kind, shapes)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS operators (
    "case" INTEGER NOT NULL, model INTEGER NOT NULL REFERENCES models ON DELETE CASCADE,
    batch INTEGER NOT NULL, threads INTEGER NOT NULL, gpu REAL NOT NULL, count INTEGER NOT NULL,
    median_ns INTEGER NOT NULL, spread_ns INTEGER NOT NULL,
    PRIMARY KEY ("case", model, batch, threads, gpu)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fits (
    hardware TEXT NOT NULL, runtime TEXT NOT NULL, device TEXT NOT NULL, models INTEGER NOT NULL,
    document TEXT NOT NULL, PRIMARY KEY (hardware, runtime, device)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS measured_alone (
    "case" INTEGER NOT NULL, hardware TEXT NOT NULL, runtime TEXT NOT NULL, batch INTEGER NOT NULL,
    threads INTEGER NOT NULL, moved_mb INTEGER NOT NULL, median_ns INTEGER NOT NULL,
    PRIMARY KEY ("case", hardware, runtime, batch, threads, moved_mb)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS refused_alone (
    "case" INTEGER NOT NULL, hardware TEXT NOT NULL, runtime TEXT NOT NULL, batch INTEGER NOT NULL,
    threads INTEGER NOT NULL, PRIMARY KEY ("case", hardware, runtime, batch, threads)
    ) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS overheads (
    hardware TEXT NOT NULL, runtime TEXT NOT NULL, threads INTEGER NOT NULL,
    per_run_ns REAL NOT NULL, per_operator_ns REAL NOT NULL,
    PRIMARY KEY (hardware, runtime, threads)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS graphs (
    file TEXT NOT NULL, sizes TEXT NOT NULL, runtime TEXT NOT NULL, state TEXT NOT NULL,
    document TEXT NOT NULL, PRIMARY KEY (file, sizes, runtime)) WITHOUT ROWID;
"""
_PATIENCE_S = 20.0  # longest wait for another program that writes
_ANEW, _ELSEWHERE = "delete it, or name another", "name one that can be written to"
_FIXES = {
    "malformed": _ANEW,
    "not a database": _ANEW,
    "no such table": _ANEW,
    "locked": "another program writes to it; try again",
    "full": "free disk space, or name a database elsewhere",
    "No space": "free disk space, or name a database elsewhere",
}


def default_database() -> Path:
    """Return the path of the database that comes with the package."""
    return Path(__file__).with_name("profiles.sqlite")


def begin_database(path: Path) -> None:
    """Ensure that a database is writable; copy the package's one if it is missing or empty.

    The copy appears atomically, even if other processes create it at the same time.

    Raises:
        ConfigError: the file is not a profile database, or cannot be written.
    """
    with _refusing(path):
        if path.is_file() and not path.stat().st_size:
            path.unlink()
        if not path.exists():
            _copy(default_database(), path)
    with opened(path, write=True):
        pass


def _copy(source: Path, path: Path) -> None:
    import shutil  # noqa: PLC0415  a database is copied once
    import tempfile  # noqa: PLC0415

    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        whole = Path(folder) / "copy"
        shutil.copyfile(source, whole)
        with contextlib.suppress(FileExistsError):
            os.link(whole, path)


@contextlib.contextmanager
def opened(path: Path, *, write: bool = False) -> Iterator[sqlite3.Connection]:
    """Open a connection to a profile database, in one transaction.

    Raises:
        ConfigError: the file is missing, is not a profile database, or cannot be written.
    """
    if not write and not path.is_file():
        raise ConfigError([Problem("database", str(path), "an existing profile database")])
    with _refusing(path), _connected(path, write=write) as connection:
        _check_version(connection, path)
        if write:
            connection.executescript(_SCHEMA)
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        yield connection


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Return whether a database has a table; files of earlier versions have fewer tables."""
    query = "SELECT count(*) FROM sqlite_master WHERE (type, name) = ('table', ?)"
    return bool(connection.execute(query, (name,)).fetchone()[0])


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if version != _VERSION and (version or tables):
        expected = f"a profile database of version {_VERSION}"
        fix = (
            "it was written by a later version of carpool"
            if version > _VERSION
            else "delete it, and run carpool profile again"
        )
        raise ConfigError([Problem(str(path), f"version {version}", expected, fix)])


@contextlib.contextmanager
def _connected(path: Path, *, write: bool) -> Iterator[sqlite3.Connection]:
    mode = "rwc" if write else "ro"
    quoted = str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    connection = sqlite3.connect(f"file:{quoted}?mode={mode}", timeout=_PATIENCE_S, uri=True)
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
    except (sqlite3.Error, ValueError, OSError) as error:
        text = getattr(error, "strerror", None) or str(error)
        expected = "a profile database that can be used"
        fix = next((fix for word, fix in _FIXES.items() if word in text), _ELSEWHERE)
        raise ConfigError([Problem(str(path), text, expected, fix)]) from error
