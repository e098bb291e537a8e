"""A provider's control groups: their version, their owner, and the cleanup after dead providers.

Theory of operation: a provider holds a lock on its folder in each tree as long as it lives. Folders
without a lock belong to providers that were killed together with their keepers; the next provider
that starts in the same groups kills what runs in them, and removes them. Meanwhile, no other
provider creates a folder there. No other place is searched, and everything may vanish at any time.
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
    from faas_stack.partition.cgroup_limits import CgroupLimits

__all__ = ["Tree", "open_tree"]

log = logging.getLogger(__name__)

# Groups are named like the provider's temporary folder. A group with another name,
# such as a systemd unit, belongs to another program.
_OURS = re.compile(r"carpool-[a-z0-9_]{8}")


class Tree(Protocol):
    """Groups of one provider, of either version."""

    version: str

    @property
    def controllers(self) -> frozenset[str]:
        """Controllers that can be used."""
        ...

    @property
    def roots(self) -> list[Path]:
        """The provider's folders, whose removal removes all groups."""
        ...

    def make(self, instance: str, limits: CgroupLimits) -> list[Path]:
        """Create an instance's groups or update their limits; return the files to enter them by."""
        ...

    def set_cores(self, instance: str, cores: tuple[int, ...]) -> None:
        """Move an instance to other cores."""
        ...

    def killed_for_memory(self, instance: str) -> int:
        """Return how many processes of an instance the kernel has killed for lack of memory."""
        ...

    def kill(self, instance: str) -> None:
        """Kill the processes in an instance's groups."""
        ...

    def remove(self, instance: str) -> bool:
        """Kill and remove an instance's groups; return whether it succeeded. Blocks."""
        ...

    def close(self) -> None:
        """Remove the provider's folders if they are empty."""
        ...


def open_tree(place: Place, name: str) -> tuple[Tree, list[int]]:
    """Remove groups of dead providers; return a new provider's groups and their locks. Blocks.

    Args:
        place: The groups of this process.
        name: Name of the provider's folder.

    Raises:
        Unusable: If no groups can be created here.
    """
    with _alone(place):
        _sweep(place)
        tree = _tree(place, name)
        return tree, [_lock(root) for root in tree.roots]


def _tree(place: Place, name: str) -> Tree:
    """Return version 2 if it has controllers, else version 1; an error gives both reasons."""
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
    """Prevent other providers from creating or removing folders here during the block."""
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
    """Remove the groups on which no living provider holds a lock."""
    own = {group.folder for group in _groups(place)}
    names = {name for folder in own for name in _below(folder) if _OURS.fullmatch(name)}
    for name in sorted(names):
        folders = [folder / name for folder in sorted(own) if (folder / name).is_dir()]
        if not any(_is_locked(folder) for folder in folders):
            for folder in folders:
                log.warning("removing %s, left by a provider that was killed", folder)
                leftovers.remove_group(str(folder))


def _below(folder: Path) -> list[str]:
    """Return the names of the direct subgroups of a group. Empty if it is gone."""
    try:
        return [entry.name for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return []


def _groups(place: Place) -> list[Group]:
    return [*place.v1.values(), *([place.v2] if place.v2 else [])]


def _is_locked(folder: Path) -> bool:
    try:
        os.close(_lock(folder))
    except FileNotFoundError:  # it is not in this tree, or has been removed
        return False
    except OSError:
        return True
    return False


def _lock(folder: Path, *, wait: bool = False) -> int:
    """Lock ``folder`` until the returned descriptor is closed or this process ends."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
