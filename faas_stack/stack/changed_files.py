"""Detection of changed files in folders, reported once they no longer change.

Editors write a file in several steps, and copying a model takes a while, so a change counts when
two successive looks have seen the same. `FileChanges` is pure; `look` reads the disk.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from carpool.files import status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    Seen = Mapping[str, tuple[int, ...]]
    Place = tuple[int, int]  # device and inode, equal for all links to a folder

__all__ = ["FileChanges", "look"]

_FOLDERS = frozenset({"__pycache__", ".git", ".mypy_cache", ".pytest_cache", ".ruff_cache"})
# Temporary files of vim, emacs, PyCharm, gedit and nano, and files that desktops create.
_TEMPORARY = re.compile(
    r"4913|.*~|\.#.*|#.*#|\..*\.sw[a-z]|.*___jb_(?:tmp|old)___|\.goutputstream-.*|.*\.tmp"
    r"|.*\.py[co]|\.DS_Store"
)


class FileChanges:
    """Changes since the last report.

    Args:
        seen: Result of the first look.
    """

    def __init__(self, seen: Seen) -> None:
        self._said = self._last = seen

    def take(self, seen: Seen) -> list[str]:
        """Return the paths that are new, changed or removed; empty while files still change.

        Args:
            seen: Result of the present look.
        """
        at_rest, self._last = seen == self._last, seen
        if not at_rest or seen == self._said:
            return []
        before, self._said = self._said, seen
        return sorted(
            path for path in before.keys() | seen.keys() if before.get(path) != seen.get(path)
        )


def look(roots: Iterable[Path], skipped: Iterable[str] = ()) -> Seen:
    """Return time, size and identity of all files below some folders, by path.

    Links are followed, except in circles. Caches and the temporary files of editors are left out.

    Args:
        roots: Folders or files to look at; missing ones have no files.
        skipped: Names of entries of the roots to leave out.
    """
    left_out = frozenset(skipped)
    return {path: _identity(status) for root in roots for path, status in _below(root, left_out)}


def _below(root: Path, skipped: frozenset[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files at or below a root, except those that disappear in the meantime."""
    state = status(root)
    if state is None:
        return
    if stat.S_ISDIR(state.st_mode):
        yield from _in_folder(str(root), skipped, frozenset([_place(state)]))
    else:
        yield str(root), state


def _in_folder(
    path: str, skipped: frozenset[str], above: frozenset[Place]
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files below a folder; a link to a folder of those ``above`` is left out."""
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if entry.name in skipped or entry.name in _FOLDERS or _TEMPORARY.fullmatch(entry.name):
                continue
            with suppress(OSError):  # a broken or circular link
                state = entry.stat()
                if not stat.S_ISDIR(state.st_mode):
                    yield entry.path, state
                elif _place(state) not in above:
                    yield from _in_folder(entry.path, frozenset(), above | {_place(state)})


def _place(status: os.stat_result) -> Place:
    return status.st_dev, status.st_ino


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_mtime_ns, status.st_size, status.st_ino
