"""Groups of control groups version 2: one tree with a folder for each instance.

A group that delegates controllers to others must have no processes of its own, except at the top
of the tree. So the provider first moves into its own leaf folder. This requires that no process of
another program is in its group, as under ``systemd-run --scope`` or in a container.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.own_cgroup import CONTROLLERS, killed_for_memory
from carpool.process import leftovers
from faas_stack.partition import amounts
from faas_stack.partition.cgroup_limits import Unusable

if TYPE_CHECKING:
    from carpool.own_cgroup import Place
    from faas_stack.partition.cgroup_limits import CgroupLimits

__all__ = ["TreeV2"]

_LEAF = "provider"
_FIX = "start it in its own group: systemd-run --scope -p Delegate=yes carpool ..."


class TreeV2:
    """The provider's groups, for the controllers that are delegated to it.

    Args:
        place: The groups of this process.
        name: Name of the provider's folder.

    Raises:
        Unusable: If there is no such tree, it has none of the controllers, or it may not be used.
    """

    version = "cgroup v2"

    def __init__(self, place: Place, name: str) -> None:
        if place.v2 is None:
            message = "control groups of version 2 are not mounted"
            raise Unusable(message)
        self._own = place.v2.folder
        wanted = set(CONTROLLERS) & set(_words(self._own / "cgroup.controllers"))
        if not wanted:
            message = f"{self._own} has none of the controllers {', '.join(CONTROLLERS)}"
            raise Unusable(message)
        self._root = self._own / name
        self._moved: list[int] = []
        try:
            self._root.mkdir()
            self._enable(self._own, wanted)
            self._enable(self._root, wanted)
        except OSError as error:
            self.close()
            message = f"{self._own}: {error.strerror}; {_FIX}"
            raise Unusable(message) from error
        except Unusable:
            self.close()
            raise
        self.controllers = frozenset(wanted)

    @property
    def roots(self) -> list[Path]:
        """The provider's folder, whose removal removes all groups."""
        return [self._root]

    def make(self, instance: str, limits: CgroupLimits) -> list[Path]:
        """Create an instance's group or update its limits; return the file used to enter it.

        Raises:
            OSError: If the kernel rejects a limit, or the provider's folder is gone.
        """
        folder = self._root / instance
        folder.mkdir(exist_ok=True)
        if "cpu" in self.controllers:
            _write(folder / "cpu.max", f"{limits.quota_us or 'max'} {limits.period_us}")
        if "cpuset" in self.controllers:
            self.set_cores(instance, limits.cores)
        if "memory" in self.controllers and limits.memory_bytes is not None:
            _write(folder / "memory.max", limits.memory_bytes)
            swap = folder / "memory.swap.max"
            if swap.exists():  # swap would hide a lack of memory
                _write(swap, 0)
        return [folder / "cgroup.procs"]

    def set_cores(self, instance: str, cores: tuple[int, ...]) -> None:
        """Move an instance to other cores; if empty, to any of the provider's."""
        _write(self._root / instance / "cpuset.cpus", amounts.core_list(cores) or "\n")

    def remove(self, instance: str) -> bool:
        """Kill and remove an instance's group; return whether it succeeded. Blocks."""
        return leftovers.remove_group(str(self._root / instance))

    def killed_for_memory(self, instance: str) -> int:
        """Return how many processes of an instance the kernel has killed for lack of memory."""
        return killed_for_memory(self._root / instance)

    def kill(self, instance: str) -> None:
        """Kill the processes in an instance's group."""
        leftovers.end_group(str(self._root / instance))

    def close(self) -> None:
        """Move the provider back to its original group and remove its folder if that is empty."""
        with contextlib.suppress(OSError):
            if self._moved:
                for folder in (self._root, self._own):
                    controllers = _words(folder / "cgroup.subtree_control")
                    _write(
                        folder / "cgroup.subtree_control",
                        " ".join(f"-{name}" for name in controllers),
                    )
                self._move(self._own, self._moved)
                (self._root / _LEAF).rmdir()
        with contextlib.suppress(OSError):
            self._root.rmdir()

    def _enable(self, folder: Path, controllers: set[str]) -> None:
        """Delegate controllers from ``folder``, moving out of it first if necessary."""
        if controllers <= set(_words(folder / "cgroup.subtree_control")):
            return
        text = " ".join(f"+{name}" for name in sorted(controllers))
        try:
            _write(folder / "cgroup.subtree_control", text)
        except OSError as error:
            if error.errno != errno.EBUSY or folder != self._own:
                raise
            self._move_out()
            _write(folder / "cgroup.subtree_control", text)

    def _move_out(self) -> None:
        """Move this process and its descendants from their group into a leaf.

        Raises:
            Unusable: If other processes are in the group, too.
        """
        inside = list(map(int, _words(self._own / "cgroup.procs")))
        foreign = [pid for pid in inside if not _is_ours(pid)]
        if foreign:
            message = f"{self._own} has processes of others, such as {foreign[0]}; {_FIX}"
            raise Unusable(message)
        (self._root / _LEAF).mkdir()
        self._move(self._root / _LEAF, inside)
        self._moved = inside

    def _move(self, folder: Path, pids: list[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                _write(folder / "cgroup.procs", pid)


def _is_ours(pid: int) -> bool:
    """Return whether a process is this process or a descendant of it, or has ended."""
    while pid > 1 and pid != os.getpid():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return True  # it has ended meanwhile
        pid = int(fields.rpartition(")")[2].split()[1])
    return pid == os.getpid()


def _words(path: Path) -> list[str]:
    return path.read_text(encoding="ascii").split() if path.exists() else []


def _write(path: Path, value: object) -> None:
    path.write_text(str(value), encoding="ascii")
