"""Files of variants that a scaler was told of: each is read again when it is another than before.

`carpool register` replaces its list in one step, so a list is either the old one or the new one. A
list that is gone, or cannot be read, changes nothing: what was known of the variants still holds.
What becomes of the news is not known here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from carpool.errors import ConfigError
from carpool.latency.variant_set import VariantSet
from carpool.variants.variant_file import read_variants

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

__all__ = ["VariantLists"]

log = logging.getLogger(__name__)

_Stamp = tuple[int, int, int]


class VariantLists:
    """Lists by function.

    Args:
        files: Where they are.
    """

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = dict(files)
        self._seen: dict[str, _Stamp | None] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def leave(self, functions: Collection[str]) -> None:
        """The models of these are another's to say."""
        self._files = {name: path for name, path in self._files.items() if name not in functions}

    def read(self, function: str) -> VariantSet:
        """The variants of one function, as they are now.

        Raises:
            ConfigError: the list is not there, or is not one.
        """
        path = self._files[function]
        self._seen[function] = _stamp(path)  # before it is read: what comes after that is news
        return VariantSet(read_variants(path))

    def news(self) -> dict[str, VariantSet]:
        """What has changed since it was read last."""
        found = {}
        for function, path in self._files.items():
            if self._seen.get(function) == _stamp(path):
                continue
            try:
                found[function] = self.read(function)
            except ConfigError as error:
                log.warning("%s: its variants are unchanged: %s", function, error)
        return found


def _stamp(path: Path) -> _Stamp | None:
    """What differs between two files at the same place; None: there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
