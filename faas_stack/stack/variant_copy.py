"""Variants registered while ``carpool up`` runs, copied into the function's build context.

Instances read their models there, and the scaler reads the list. So the model files are copied
first and the list, which names them, last and in one step: a reader finds what it names. Files that
a new list no longer names stay, as instances may still have to load them.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from typing import TYPE_CHECKING, Any

from carpool.validation import rules
from watchdog_plugin.model_folder import listing

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from faas_stack.stack.stack_function import StackFunction

__all__ = ["VariantCopy", "has_variants", "keep_current", "variant_copy"]

log = logging.getLogger(__name__)

_LOOK_S = 0.5


class VariantCopy:
    """The variants of one function.

    Args:
        function: Its name.
        source: The list that ``carpool register`` writes.
        target: Its copy in the build context.
    """

    def __init__(self, function: str, source: Path, target: Path) -> None:
        self.function = function
        self.target = target
        self._source = source
        self._seen = target.read_bytes()

    def refresh(self) -> bool:
        """Copy new variants, and return whether there were any.

        Raises:
            OSError: A file cannot be read or written.
            ValueError: The list is malformed.
        """
        listed = self._source.read_bytes()
        if listed == self._seen:
            return False
        data: Any = rules.loads(listed.decode())
        for entry in data["variants"]:
            name = entry.get("file")
            if name and not (self.target.parent / name).exists():
                _copied(self._source.parent / name, self.target.parent / name)
        _copied(self._source, self.target)
        self._seen = self.target.read_bytes()
        return True


def variant_copy(function: StackFunction, folder: Path) -> VariantCopy | None:
    """Return the variants of a function assembled in ``folder``; None if it has none."""
    source = listing(function.handler) if function.handler else None
    if source is None or function.handler is None:
        return None
    if function.template:
        folder /= function.template.handler_folder
    target = folder / source.relative_to(function.handler)
    return VariantCopy(function.name, source.resolve(), target.resolve())


def has_variants(function: StackFunction) -> bool:
    """Return whether variants are registered in a function's folder."""
    return bool(function.handler and listing(function.handler))


async def keep_current(all_of_them: Collection[VariantCopy]) -> None:
    """Refresh the copies repeatedly until cancelled; the collection may change."""
    reported: dict[str, str] = {}
    while True:
        await asyncio.sleep(_LOOK_S)
        for each in tuple(all_of_them):
            try:
                await asyncio.to_thread(each.refresh)
                reported.pop(each.function, None)
            except (OSError, ValueError, KeyError, TypeError) as error:
                if reported.get(each.function) != str(error):
                    log.warning(
                        "%s: its new variants could not be copied: %s", each.function, error
                    )
                reported[each.function] = str(error)


def _copied(source: Path, target: Path) -> None:
    """Copy a file atomically, so that the target is never incomplete."""
    fresh = target.with_name(target.name + ".new")
    shutil.copyfile(source, fresh)
    fresh.replace(target)
