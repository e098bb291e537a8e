"""The scaler's store, one SQLite file: plans, learned state, and counts of arrivals.

It holds documents by kind and name, each a JSON object that its owner understands, and counts of
arrivals per minute. A round of the scaler is one transaction: after a crash the file has the state
after some round. The file is never repaired or replaced here: if it is damaged, or from a later
version, an error says so, and it is left unchanged.

The store does not interpret the documents.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from carpool.errors import ConfigError, Problem
from carpool.validation import rules
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["KINDS", "Store"]

KINDS = ("function", "prewarm", "sender")
_LETTING_GO_S = 2.0  # wait for a scaler that is about to end
_APPLICATION = 0x43504F4F  # "CPOO": another program's file is not taken for ours
_MIGRATIONS = (
    """
    CREATE TABLE document (
        kind TEXT NOT NULL, name TEXT NOT NULL, form TEXT NOT NULL, PRIMARY KEY (kind, name)
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE arrival (
        function TEXT NOT NULL, app TEXT NOT NULL, minute INTEGER NOT NULL, count INTEGER NOT NULL,
        PRIMARY KEY (function, app, minute)
    ) WITHOUT ROWID;
    """,
)
_SCHEMA = rules.record(
    {
        "version": rules.number("the version of an export", lambda v: v == len(_MIGRATIONS)),
        "documents": rules.mapping(rules.mapping(rules.mapping(rules.anything))),
        "arrivals": rules.each(
            rules.record(
                {
                    "function": rules.text("a name"),
                    "app": rules.text("a name"),
                    "minute": rules.number("a minute", lambda v: v >= 0, whole=True),
                    "count": rules.number("a count", lambda v: v >= 0, whole=True),
                },
                frozenset({"function", "app", "minute", "count"}),
            )
        ),
    },
    frozenset({"version", "documents", "arrivals"}),
)


class Store:
    """A store file; `claim` it before changing it, and `close` it. One thread at a time may use it.

    Args:
        path: The file, created if missing.

    Raises:
        ConfigError: The file cannot be used; it has not been changed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._claim: sqlite3.Connection | None = None
        with self._trouble():
            path.parent.mkdir(parents=True, exist_ok=True)
            _of_its_owner(path)  # and so will the files be that SQLite creates beside it
            # autocommit: transactions begin and end where this file says so
            self._database = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=10.0
            )
        try:
            with self._trouble():
                self._open()
        except BaseException:
            self._database.close()
            raise

    def claim(self) -> None:
        """Reserve the store exclusively, until it is closed or this process ends.

        Raises:
            ConfigError: Another scaler has claimed it.
        """
        beside = self._path.with_name(f"{self._path.name}.lock")
        with self._trouble():
            _of_its_owner(beside)
            claim = sqlite3.connect(
                beside, isolation_level=None, check_same_thread=False, timeout=_LETTING_GO_S
            )
        try:
            claim.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            claim.close()
            problem = self._problem(
                "a store that no running scaler uses", f"stop it first ({error})"
            )
            raise ConfigError([problem]) from error
        self._claim = claim

    def put(self, kind: str, documents: Mapping[str, Mapping[str, Any]]) -> None:
        """Store documents, replacing those with the same names."""
        rows = [(kind, name, json.dumps(data)) for name, data in documents.items()]
        self._database.executemany("INSERT OR REPLACE INTO document VALUES (?, ?, ?)", rows)

    def get(self, kind: str) -> dict[str, Any]:
        """Return all documents of a kind, by name."""
        rows = self._database.execute("SELECT name, form FROM document WHERE kind = ?", (kind,))
        return {name: json.loads(data) for name, data in rows}

    def drop(self, kind: str, *names: str) -> None:
        """Delete documents."""
        rows = [(kind, name) for name in names]
        self._database.executemany("DELETE FROM document WHERE kind = ? AND name = ?", rows)

    def count(self, function: str, app: str, minute: int, count: int) -> None:
        """Add to the arrivals of a minute since the epoch."""
        self._database.execute(
            "INSERT INTO arrival VALUES (?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET count = count + excluded.count",
            (function, app, minute, count),
        )

    def counts(self, function: str, since: int = 0) -> list[tuple[str, int, int]]:
        """Return application, minute and arrivals of a function from a minute on, by time."""
        rows = self._database.execute(
            "SELECT app, minute, count FROM arrival WHERE function = ? AND minute >= ? "
            "ORDER BY minute, app",
            (function, since),
        )
        return rows.fetchall()

    def forget(self, before: int) -> None:
        """Delete the arrivals of all minutes before ``before``."""
        self._database.execute("DELETE FROM arrival WHERE minute < ?", (before,))

    @contextmanager
    def round(self) -> Iterator[None]:
        """Run the changes inside as one transaction."""
        with self._trouble():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:  # on a full disk it may have ended already
                    self._database.execute("ROLLBACK")
                raise

    def export(self) -> dict[str, Any]:
        """Return everything, for `restore`."""
        rows = self._database.execute("SELECT function, app, minute, count FROM arrival")
        names = ("function", "app", "minute", "count")
        return {
            "version": len(_MIGRATIONS),
            "documents": {kind: self.get(kind) for kind in KINDS},
            "arrivals": [dict(zip(names, row, strict=True)) for row in rows],
        }

    def restore(self, exported: object) -> None:
        """Replace everything by the result of `export`.

        Raises:
            ConfigError: The data is malformed; nothing has been changed.
        """
        data, problems = rules.checked(_SCHEMA, exported), Problems()
        for kind in data["documents"].keys() - set(KINDS):
            problems.unknown(kind, KINDS, within="documents.")
        problems.raise_if_any()
        with self.round():
            self._database.execute("DELETE FROM document")
            self._database.execute("DELETE FROM arrival")
            for kind, documents in data["documents"].items():
                self.put(kind, documents)
            for row in data["arrivals"]:
                self.count(row["function"], row["app"], row["minute"], row["count"])

    def close(self) -> None:
        """Write everything into the one file, and close it."""
        with ExitStack() as ends:
            if self._claim:
                ends.enter_context(closing(self._claim))
            ends.enter_context(closing(self._database))
            with self._trouble():
                self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _open(self) -> None:
        """Check the file before anything is written to it, then migrate it to this version."""
        (owner,) = self._database.execute("PRAGMA application_id").fetchone()
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        (tables,) = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if owner != _APPLICATION and (owner or version or tables):
            raise ConfigError(
                [self._problem("a store of Carpool's scaler", "it belongs to another program")]
            )
        if version > len(_MIGRATIONS):
            hint = f"it has version {version}, of a later Carpool: run that version"
            raise ConfigError(
                [self._problem(f"a store of version {len(_MIGRATIONS)} at most", hint)]
            )
        (sound,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
        if sound != "ok":
            raise ConfigError([self._problem("an undamaged store", f"{sound}; {_MEND}")])
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        for number in range(version, len(_MIGRATIONS)):
            self._database.executescript(
                f"BEGIN IMMEDIATE; {_MIGRATIONS[number]} PRAGMA user_version = {number + 1}; "
                f"PRAGMA application_id = {_APPLICATION}; COMMIT;"
            )

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        """Translate errors of SQLite and the file system into ConfigErrors."""
        try:
            yield
        except sqlite3.OperationalError as error:
            expected = "a file that can be written, and that no other scaler uses"
            raise ConfigError([self._problem(expected, str(error))]) from error
        except sqlite3.DatabaseError as error:
            raise ConfigError([self._problem("an undamaged store", f"{error}; {_MEND}")]) from error
        except OSError as error:
            raise ConfigError([self._problem("a folder to write in", str(error))]) from error

    def _problem(self, expected: str, hint: str) -> Problem:
        return Problem("--store", str(self._path), expected, hint)


_MEND = (
    "nothing was changed: move it away to start with an empty store, or restore an export of "
    "`carpool scaler export`"
)


def _of_its_owner(path: Path) -> None:
    """Create the file if missing, and make it and those beside it readable by its owner only."""
    path.touch(mode=0o600)
    for each in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))):
        with suppress(FileNotFoundError):
            each.chmod(0o600)
