"""A gate that a test opens for another process, as a lock on a file."""

from __future__ import annotations

import fcntl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Gate"]


class Gate:
    """Stops a handler until a test opens it; closed at first.

    Attributes:
        path: The file whose lock a process has to wait for.
        word: The body that makes the scripted handler stop there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.word = f"wait:{path}"
        self._file = path.open("w")
        self.close()

    def close(self) -> None:
        """Stop handlers from now on."""
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def open(self) -> None:
        """Let the handlers continue."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def remove(self) -> None:
        """Open the gate permanently."""
        self._file.close()
