"""A gate in another process's way, which a test opens: a lock on a file."""

from __future__ import annotations

import fcntl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Gate"]


class Gate:
    """Where a handler stops until a test lets it go on; closed at first.

    Attributes:
        path: The file whose lock a process has to wait for.
        word: The body that has the scripted handler stop there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.word = f"wait:{path}"
        self._file = path.open("w")
        self.close()

    def close(self) -> None:
        """From now on it stops."""
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def open(self) -> None:
        """It goes on."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def remove(self) -> None:
        """It is open, for good."""
        self._file.close()
