"""Groups of control groups version 1: one tree per controller, with a folder for each instance.

Below the group of this process, there is one folder for the provider, which contains one for each
instance. This module writes files; `allocation` decides how much an instance may have.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from carpool.own_cgroup import CONTROLLERS, killed_for_memory
from carpool.process import leftovers
from faas_stack.partition import amounts
from faas_stack.partition.cgroup_limits import Unusable

if TYPE_CHECKING:
    from pathlib import Path

    from carpool.own_cgroup import Place
    from faas_stack.partition.cgroup_limits import CgroupLimits

__all__ = ["TreesV1"]

_NO_QUOTA = -1


class TreesV1:
    """The provider's groups, for the controllers that exist and are writable.

    Args:
        place: The groups of this process.
        name: Name of the provider's folder.

    Raises:
        Unusable: If no controller can be used.
    """

    version = "cgroup v1"

    def __init__(self, place: Place, name: str) -> None:
        self.folders: dict[str, Path] = {}
        why = "no controller of version 1 is mounted"
        for controller in CONTROLLERS:
            if group := place.v1.get(controller):
                folder = group.folder / name
                try:
                    folder.mkdir()
                    if controller == "cpuset":
                        _inherit(folder)
                except OSError as error:
                    why = f"{group.folder}: {error.strerror}"
                    with contextlib.suppress(OSError):
                        folder.rmdir()
                    continue
                self.folders[controller] = folder
        if not self.folders:
            raise Unusable(why)

    @property
    def controllers(self) -> frozenset[str]:
        """Controllers that can be used."""
        return frozenset(self.folders)

    @property
    def roots(self) -> list[Path]:
        """The provider's folders, whose removal removes all groups."""
        return list(self.folders.values())

    def make(self, instance: str, limits: CgroupLimits) -> list[Path]:
        """Create an instance's groups or update their limits; return the files to enter them by.

        Raises:
            OSError: If the kernel rejects a limit, or the provider's folder is gone.
        """
        for controller, root in self.folders.items():
            folder = root / instance
            folder.mkdir(exist_ok=True)
            if controller == "cpu":
                _write(folder / "cpu.cfs_period_us", limits.period_us)
                _write(folder / "cpu.cfs_quota_us", limits.quota_us or _NO_QUOTA)
            elif controller == "cpuset":
                _inherit(folder)
                self.set_cores(instance, limits.cores)
            else:
                _limit_memory(folder, limits.memory_bytes)
        return [root / instance / "cgroup.procs" for root in self.folders.values()]

    def set_cores(self, instance: str, cores: tuple[int, ...]) -> None:
        """Move an instance to other cores; if empty, to any of the provider's."""
        root = self.folders["cpuset"]
        text = amounts.core_list(cores) or (root / "cpuset.cpus").read_text(encoding="ascii")
        _write(root / instance / "cpuset.cpus", text)

    def remove(self, instance: str) -> bool:
        """Kill and remove an instance's groups; return whether it succeeded. Blocks."""
        removed = [leftovers.remove_group(str(root / instance)) for root in self.roots]
        return all(removed)

    def killed_for_memory(self, instance: str) -> int:
        """Return how many processes of an instance the kernel has killed for lack of memory."""
        root = self.folders.get("memory")
        return killed_for_memory(root / instance) if root else 0

    def kill(self, instance: str) -> None:
        """Kill the processes in an instance's groups."""
        for root in self.roots:
            leftovers.end_group(str(root / instance))

    def close(self) -> None:
        """Remove the provider's folders if they are empty."""
        for root in self.roots:
            with contextlib.suppress(OSError):
                root.rmdir()


def _limit_memory(folder: Path, size_bytes: int | None) -> None:
    if size_bytes is None:
        return  # created without a limit; the size of an instance never changes
    _write(folder / "memory.limit_in_bytes", size_bytes)
    with_swap = folder / "memory.memsw.limit_in_bytes"
    if with_swap.exists():  # swap would hide a lack of memory
        _write(with_swap, size_bytes)


def _inherit(folder: Path) -> None:
    """Copy cores and memory nodes from the parent, as a cpuset group is unusable without them."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        _write(folder / name, (folder.parent / name).read_text(encoding="ascii"))


def _write(path: Path, value: object) -> None:
    path.write_text(str(value), encoding="ascii")
