"""Files that users name for results: checked before a command computes, and written after it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from carpool.errors import CarpoolError
from carpool.files import is_folder, status

if TYPE_CHECKING:
    from pathlib import Path

    from carpool.validation.problems import Problems

__all__ = ["check_output", "write_output"]


def check_output(option: str, path: Path, problems: Problems) -> None:
    """Add a problem if a file cannot be written, so that no result is computed in vain."""
    parent = path.absolute().parent
    if not is_folder(parent):
        problems.add(option, path, "a file in a folder that exists")
    elif is_folder(path):
        problems.add(option, path, "a file", "it is a folder: name a file in it")
    elif not os.access(path if status(path) else parent, os.W_OK):
        problems.add(option, path, "a file that you may write")


def write_output(option: str, path: Path, text: str) -> None:
    """Write a file, after the results have been printed.

    Raises:
        CarpoolError: It cannot be written, as with a full disk.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        why = error.strerror or error
        message = f"{option} = {str(path)!r}: it was not written completely: {why}"
        raise CarpoolError(message) from error
