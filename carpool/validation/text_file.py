"""Reading text files that users write, with problems reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from carpool.validation.problems import Problems

__all__ = ["read_text"]


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
