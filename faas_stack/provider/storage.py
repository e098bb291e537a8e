"""Files of the provider: replaced as a whole, readable by it alone unless it says otherwise."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, ClassVar

from carpool.errors import CarpoolError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NoSpace", "write"]


class NoSpace(CarpoolError):
    """What was asked for cannot be stored."""

    status: ClassVar[int] = 507


def write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write ``data`` to ``path``, whose folder is made if need be.

    Raises:
        NoSpace: it cannot be written; what was there before stays.
    """
    fresh = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh.touch(mode=0o600)
        fresh.write_bytes(data)
        fresh.chmod(mode)
        fresh.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink()
        message = f"cannot write {path}: {error.strerror}; nothing was changed"
        raise NoSpace(message) from error
