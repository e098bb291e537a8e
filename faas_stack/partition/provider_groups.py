"""A provider's control groups: which version, whose they are, and what the dead have left.

Theory of operation: a provider holds a lock on its folder in each tree as long as it lives. Folders
that nobody holds are those of providers that were killed together with their keepers; the next one
to start in the same groups ends what is in them, and removes them. While one does that, no other
makes a folder there. Nothing is looked for anywhere else, and everything may vanish at any time.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
from typing import TYPE_CHECKING, Protocol

from carpool.process import leftovers
from faas_stack.partition.cgroup_limits import Unusable
from faas_stack.partition.cgroup_v1 import TreesV1
from faas_stack.partition.cgroup_v2 import TreeV2

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from carpool.own_cgroup import Group, Place
    from faas_stack.partition.cgroup_limits import Limits

__all__ = ["Tree", "open_tree"]

log = logging.getLogger(__name__)

# As a provider's temporary folder is named, whose name its groups have. Whatever has another name,
# a unit of systemd's for one, belongs to another program.
_OURS = re.compile(r"carpool-[a-z0-9_]{8}")


class Tree(Protocol):
    """The groups of one provider, of either version."""

    version: str

    @property
    def controllers(self) -> frozenset[str]:
        """What can be limited."""
        ...

    @property
    def roots(self) -> list[Path]:
        """The provider's folders; removing them removes all of it."""
        ...

    def make(self, instance: str, limits: Limits) -> list[Path]:
        """Make an instance's groups, or write their limits again; the files to enter them by."""
        ...

    def set_cores(self, instance: str, cores: tuple[int, ...]) -> None:
        """Move an instance to other cores."""
        ...

    def killed_for_memory(self, instance: str) -> int:
        """How many processes of an instance the kernel has killed for lack of memory."""
        ...

    def kill(self, instance: str) -> None:
        """End what is in an instance's groups."""
        ...

    def remove(self, instance: str) -> bool:
        """End what is in an instance's groups and remove them; blocks."""
        ...

    def close(self) -> None:
        """Remove the provider's folders, if they are empty."""
        ...


def open_tree(place: Place, name: str) -> tuple[Tree, list[int]]:
    """The groups of a provider, after those of dead ones are removed, and its locks. Blocks.

    Args:
        place: where this process is.
        name: of the provider's folder.

    Raises:
        Unusable: none can be made here.
    """
    with _alone(place):
        _sweep(place)
        tree = _tree(place, name)
        return tree, [_lock(root) for root in tree.roots]


def _tree(place: Place, name: str) -> Tree:
    """Version 2 where it has controllers, else version 1, whose error says why there is none."""
    try:
        return TreeV2(place, name)
    except Unusable as why:
        if not place.v1:
            raise
        try:
            return TreesV1(place, name)
        except Unusable as why_not:
            message = f"{why}; {why_not}"
            raise Unusable(message) from None


@contextlib.contextmanager
def _alone(place: Place) -> Iterator[None]:
    """While this lasts no other provider makes or removes folders beside ours."""
    held = []
    for folder in sorted({group.folder for group in _groups(place)}):
        with contextlib.suppress(OSError):
            held.append(_lock(folder, wait=True))
    try:
        yield
    finally:
        for lock in held:
            os.close(lock)


def _sweep(place: Place) -> None:
    """Remove the groups that no living provider holds a lock on."""
    own = {group.folder for group in _groups(place)}
    names = {name for folder in own for name in _below(folder) if _OURS.fullmatch(name)}
    for name in sorted(names):
        folders = [folder / name for folder in sorted(own) if (folder / name).is_dir()]
        if not any(_is_locked(folder) for folder in folders):
            for folder in folders:
                log.warning("removing %s, left by a provider that was killed", folder)
                leftovers.remove_group(str(folder))


def _below(folder: Path) -> list[str]:
    """The names of the groups directly below one; none if it has gone."""
    try:
        return [entry.name for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return []


def _groups(place: Place) -> list[Group]:
    return [*place.v1.values(), *([place.v2] if place.v2 else [])]


def _is_locked(folder: Path) -> bool:
    try:
        os.close(_lock(folder))
    except FileNotFoundError:  # it is not in this tree, or has gone
        return False
    except OSError:
        return True
    return False


def _lock(folder: Path, *, wait: bool = False) -> int:
    """Hold ``folder`` until the descriptor is closed, or this process is gone."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
