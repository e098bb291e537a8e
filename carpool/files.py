"""Reading a user's files: the text, or a problem that says why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from carpool.strict import Problems

__all__ = ["read_text"]


def read_text(path: Path, problems: Problems) -> str | None:
    """The text of ``path``, or None and a problem that says why it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        problems.add("file", str(path), "an existing file")
    except OSError as error:
        problems.add(str(path), error.strerror or "unreadable", "a readable file")
    except UnicodeDecodeError as error:
        problems.add(str(path), f"byte {error.start} is not UTF-8", "a text file in UTF-8")
    return None
