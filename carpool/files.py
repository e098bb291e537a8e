"""The status of paths that users name, replacing files atomically, and reasons of failures."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

__all__ = ["is_folder", "reason", "replace_file", "status"]


def status(path: Path) -> os.stat_result | None:
    """Return the status of a path's target; None if there is none, or the path is invalid."""
    try:
        return path.stat()
    except (OSError, ValueError):  # a name that is too long, circular links, a NUL
        return None


def is_folder(path: Path) -> bool:
    """Return whether a path leads to a folder."""
    its_status = status(path)
    return its_status is not None and stat.S_ISDIR(its_status.st_mode)


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


def reason(error: OSError) -> str:
    """Return the message of the first error, as copying a tree reports all errors together."""
    if not isinstance(error, shutil.Error):
        return str(error)
    (_, _, first), *more = error.args[0]
    return f"{first}" + (f", and {len(more)} more like it" if more else "")
