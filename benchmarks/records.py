"""Store results as one JSON object per line when measured, so that a run can be resumed.

Every record has a ``kind``. This module knows the form and none of the contents.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Records"]


class Records:
    """All measurements so far, in memory and in a file.

    Args:
        path: of the file, which is started empty.
        resume: continue with the file's contents instead.
    """

    def __init__(self, path: Path, *, resume: bool) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        old = path.read_text() if resume and path.exists() else ""
        whole = old[: old.rfind("\n") + 1]  # less a line torn by a sudden end
        path.write_text(whole)
        self._all: list[dict[str, Any]] = [json.loads(line) for line in whole.splitlines()]

    def add(self, kind: str, **fields: object) -> None:
        """Add a record, and write it to the file at once."""
        record = {"kind": kind, **fields}
        self._all.append(record)
        with self._path.open("a") as file:
            file.write(json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n")

    def forget(self, **fields: object) -> None:
        """Remove all records with these fields."""
        kept = [r for r in self._all if any(r.get(key) != value for key, value in fields.items())]
        self._all = []
        self._path.write_text("")
        for record in kept:
            self.add(**record)

    def find(self, kind: str, **fields: object) -> list[dict[str, Any]]:
        """Return the records of one kind with these fields, in order."""
        wanted = {"kind": kind, **fields}
        return [r for r in self._all if all(r.get(key) == value for key, value in wanted.items())]

    def last(self, kind: str, **fields: object) -> dict[str, Any] | None:
        """Return the newest such record, or None if there is none."""
        records = self.find(kind, **fields)
        return records[-1] if records else None
