"""Files of the provider: replaced as a whole, and readable by it alone unless stated otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from carpool.errors import CarpoolError
from carpool.files import replace_file

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NoSpace", "write"]


class NoSpace(CarpoolError):
    """Raised when data cannot be stored."""

    status: ClassVar[int] = 507


def write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write ``data`` to ``path``, creating its folder if needed.

    Raises:
        NoSpace: The file cannot be written; its previous content stays.
    """
    try:
        replace_file(path, data, mode)
    except OSError as error:
        message = f"cannot write {path}: {error.strerror}; nothing was changed"
        raise NoSpace(message) from error
