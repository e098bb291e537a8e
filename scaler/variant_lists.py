"""The files of variants that a scaler was given; each is read again when it changes.

`carpool register` replaces its list atomically, so a list is either the old one or the new one. A
list that is missing or cannot be read changes nothing: the known variants remain valid.
What is done with changed lists is decided elsewhere.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from carpool.errors import ConfigError
from carpool.variants.variant_file import read_variants
from carpool.variants.variant_set import VariantSet

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

__all__ = ["VariantLists"]

log = logging.getLogger(__name__)

_Stamp = tuple[int, int, int]


class VariantLists:
    """Lists of variants by function.

    Args:
        files: Their paths by function.
    """

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = dict(files)
        self._seen: dict[str, _Stamp | None] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def leave(self, functions: Collection[str]) -> None:
        """Ignore the lists of these functions, whose models come from elsewhere."""
        self._files = {name: path for name, path in self._files.items() if name not in functions}

    def read(self, function: str) -> VariantSet:
        """Return the current variants of one function.

        Raises:
            ConfigError: The list is missing or malformed.
        """
        path = self._files[function]
        self._seen[function] = _stamp(path)  # before it is read: what comes after that is news
        return VariantSet(read_variants(path))

    def news(self) -> dict[str, VariantSet]:
        """Return the lists that have changed since they were last read."""
        sets = {}
        for function, path in self._files.items():
            if self._seen.get(function) == _stamp(path):
                continue
            try:
                sets[function] = self.read(function)
            except ConfigError as error:
                log.warning("%s: its variants are unchanged: %s", function, error)
        return sets


def _stamp(path: Path) -> _Stamp | None:
    """Return a value that changes when the file is replaced; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
