"""Reading a user's files, with problems reported, and replacing files atomically."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from carpool.validation.problems import Problems

__all__ = ["is_folder", "read_text", "replace_file", "status"]


def read_text(path: Path, problems: Problems) -> str | None:
    """Return the text of ``path``; if it cannot be read, return None and add a problem."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        problems.add("file", str(path), "an existing file")
    except OSError as error:
        problems.add(str(path), error.strerror or "unreadable", "a readable file")
    except UnicodeDecodeError as error:
        problems.add(str(path), f"byte {error.start} is not UTF-8", "a text file in UTF-8")
    except ValueError as error:  # a NUL in the path
        problems.add("file", repr(str(path)), f"a path ({error})")
    return None


def status(path: Path) -> os.stat_result | None:
    """Return the status of what a path leads to; None if that is nothing, or it is no path."""
    try:
        return path.stat()
    except (OSError, ValueError):  # a name that is too long, a circle of links, a NUL
        return None


def is_folder(path: Path) -> bool:
    """Return whether a path leads to a folder."""
    found = status(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write ``data`` to ``path`` atomically, creating its folder for the owner alone if missing.

    Readers never see a part of the data, and only the owner can read it before it has its mode.

    Raises:
        OSError: it cannot be written; the previous file is kept.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A name of its own: no other writer's file, and no link that another user has put there.
    handle, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    fresh = Path(name)
    try:
        os.close(handle)
        fresh.write_bytes(data)
        fresh.chmod(mode)
        fresh.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
