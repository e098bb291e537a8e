"""A snapshot of the loop's state in a file: the loop's process writes it, others read it.

Readers and the writer never wait for each other (SQLite's write-ahead log). Documents are replaced
as a whole; samples of the functions' past are appended.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

__all__ = ["PastSamples", "SnapshotFile"]

_FILE = "snapshot.db"
_TABLES = (
    "CREATE TABLE IF NOT EXISTS documents (path TEXT PRIMARY KEY, body BLOB)",
    """CREATE TABLE IF NOT EXISTS samples (
        name TEXT, number INTEGER, body BLOB, PRIMARY KEY (name, number)) WITHOUT ROWID""",
)
_WAIT_S = 5.0


class PastSamples(NamedTuple):
    """New samples of one function.

    Attributes:
        name: Name of the function.
        first: Number of the oldest sample that is kept.
        new: Samples by number, in JSON.
    """

    name: str
    first: int
    new: Mapping[int, bytes]


class SnapshotFile:
    """The snapshot file in a folder that only its user can read."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE

    def publish(self, documents: Mapping[str, bytes], pasts: Iterable[PastSamples]) -> None:
        """Replace all documents and update the samples; those of other functions are deleted."""
        with closing(self._open()) as file, file:
            file.execute("DELETE FROM documents")
            file.executemany("INSERT INTO documents VALUES (?, ?)", documents.items())
            kept = set()
            for past in pasts:
                kept.add(past.name)
                rows = ((past.name, number, body) for number, body in past.new.items())
                file.executemany("INSERT OR REPLACE INTO samples VALUES (?, ?, ?)", rows)
                before = (past.name, past.first)
                file.execute("DELETE FROM samples WHERE name = ? AND number < ?", before)
            known = {name for (name,) in file.execute("SELECT DISTINCT name FROM samples")}
            gone = ((name,) for name in known - kept)
            file.executemany("DELETE FROM samples WHERE name = ?", gone)

    def forget(self, name: str) -> None:
        """Delete the samples of a function, whose numbering starts again."""
        with closing(self._open()) as file, file:
            file.execute("DELETE FROM samples WHERE name = ?", (name,))

    def document(self, path: str) -> bytes | None:
        """Return the document of a path; None if there is none."""
        with closing(self._open()) as file:
            query = "SELECT body FROM documents WHERE path = ?"
            row = file.execute(query, (path,)).fetchone()
        return row[0] if row else None

    def paths(self, prefix: str) -> list[str]:
        """Return the paths of documents that start with a prefix, without it, in order."""
        with closing(self._open()) as file:
            query = "SELECT path FROM documents WHERE substr(path, 1, ?) = ? ORDER BY path"
            rows = file.execute(query, (len(prefix), prefix)).fetchall()
        return [path[len(prefix) :] for (path,) in rows]

    def samples(self, name: str, after: int) -> list[orjson.Fragment]:
        """Return a function's samples with numbers higher than ``after``, oldest first."""
        with closing(self._open()) as file:
            query = "SELECT body FROM samples WHERE name = ? AND number > ? ORDER BY number"
            return [orjson.Fragment(body) for (body,) in file.execute(query, (name, after))]

    def _open(self) -> sqlite3.Connection:
        file = sqlite3.connect(self._path, timeout=_WAIT_S)
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = OFF")  # after a crash the data is of no use
        for table in _TABLES:
            file.execute(table)
        return file
