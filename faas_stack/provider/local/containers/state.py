"""The state folder: its lock, and the owner mark of the containers created from it.

One provider at a time holds the folder. The owner mark is on every container, so that a provider
with another folder never takes over containers because their stack has the same name.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Problem
from faas_stack.provider import storage

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["State"]


class State:
    """A state folder that is locked until `close`.

    Raises:
        ConfigError: Another provider holds the folder, or it cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self.mounts = folder / "mounts"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            expected = "a folder the provider may write to"
            raise ConfigError([Problem("--state", str(folder), expected, str(error))]) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            expected = "a folder no other provider uses"
            problem = Problem("--state", str(folder), expected, "one runs on it already")
            raise ConfigError([problem]) from error
        self.owner = _owner(folder / "owner")

    def close(self) -> None:
        """Unlock the folder."""
        os.close(self._lock)


def _owner(path: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        return path.read_text()
    mark = uuid.uuid4().hex
    storage.write(path, mark.encode())
    return mark
