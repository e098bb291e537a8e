"""Reading text files that users write, with problems reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from carpool.validation.problems import Problems

__all__ = ["read_text"]

_GZIP = b"\x1f\x8b"
_SPREADSHEETS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")  # of .xlsx and .ods, and of .xls


def read_text(
    path: Path, problems: Problems, *, may_be_gzip: bool = False, missing: str = ""
) -> str | None:
    """Return the text of ``path``; if it cannot be read, return None and add a problem.

    Args:
        path: The file, read once, so it may be a pipe.
        problems: Gets the problem.
        may_be_gzip: Whether a file compressed by gzip is decompressed.
        missing: What to do if there is no such file.
    """
    data = b""
    try:
        data = path.read_bytes()
        if may_be_gzip and data.startswith(_GZIP):
            data = _decompressed(data)
        return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        problems.add("file", str(path), "an existing file", missing)
    except EOFError as error:
        problems.add(str(path), str(error), "an intact gzip file")
    except OSError as error:
        problems.add(str(path), error.strerror or "unreadable", "a readable file")
    except UnicodeDecodeError as error:
        hint = "export the spreadsheet as CSV" if data.startswith(_SPREADSHEETS) else ""
        problems.add(str(path), f"byte {error.start} is not UTF-8", "a text file in UTF-8", hint)
    except ValueError as error:  # a NUL in the path
        problems.add("file", repr(str(path)), f"a path ({error})")
    return None


def _decompressed(data: bytes) -> bytes:
    """Return the content of a gzip file.

    Raises:
        EOFError: The file is damaged or ends early.
    """
    import gzip  # noqa: PLC0415 - few files are compressed
    import zlib  # noqa: PLC0415

    try:
        return gzip.decompress(data)
    except (OSError, zlib.error) as error:
        raise EOFError(str(error)) from error
