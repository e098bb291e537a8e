"""The control groups of this process, and their limits.

Version 1 has a tree for each controller, version 2 one for all; a machine may have both, each with
some of the controllers. Reads only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["CONTROLLERS", "OUT_OF_MEMORY", "Group", "Place", "killed_for_memory", "own_place"]

CONTROLLERS = ("cpu", "cpuset", "memory")
OUT_OF_MEMORY = "out of memory; its limit is com.carpool.memory or limits.memory"
_UNLIMITED_V1 = 2**62  # version 1 writes "no limit" as a number of about this size


@dataclass(frozen=True, slots=True)
class Group:
    """A control group, and the top of its tree."""

    folder: Path
    top: Path

    def upwards(self) -> Iterator[Path]:
        """Yield the folders of the group and of its ancestors."""
        folder = self.folder
        yield folder
        while folder != self.top:
            folder = folder.parent
            yield folder


@dataclass(frozen=True, slots=True)
class Place:
    """The control groups of this process.

    Attributes:
        v1: Groups by controller, for controllers in version 1.
        v2: Group in the tree of version 2; None if there is none.
    """

    v1: Mapping[str, Group] = field(default_factory=dict)
    v2: Group | None = None

    def cpu(self) -> float:
        """Return the cores that quotas allow this process; infinity if unlimited."""
        limits = [math.inf]
        if group := self.v1.get("cpu"):
            for folder in group.upwards():
                quota, period = (_number(folder / f"cpu.cfs_{n}_us") for n in ("quota", "period"))
                limits += [quota / period] if quota > 0 and period > 0 else []
        for folder in self.v2.upwards() if self.v2 else ():
            quota_text, _, period_text = _text(folder / "cpu.max").partition(" ")
            limits += [int(quota_text) / int(period_text)] if quota_text.isdecimal() else []
        return min(limits)

    def memory_bytes(self) -> float:
        """Return the bytes of memory that limits allow this process; infinity if unlimited."""
        limits = [math.inf]
        if group := self.v1.get("memory"):
            sizes = [_number(folder / "memory.limit_in_bytes") for folder in group.upwards()]
            limits += [size for size in sizes if 0 < size < _UNLIMITED_V1]
        for folder in self.v2.upwards() if self.v2 else ():
            text = _text(folder / "memory.max")
            limits += [int(text)] if text.isdecimal() else []
        return min(limits)

    def killed_for_memory(self) -> int:
        """Return how many processes in these groups the kernel has killed for lack of memory."""
        groups = [*filter(None, [self.v1.get("memory"), self.v2])]
        return sum(killed_for_memory(group.folder) for group in groups)

    def out_of_memory(self) -> str:
        """Return the message for such a kill, with the limit that applies here."""
        size_bytes = self.memory_bytes()
        limit = f" ({size_bytes / 2**20:.4g} MiB)" if size_bytes < math.inf else ""
        return f"{OUT_OF_MEMORY}{limit}"


def killed_for_memory(folder: Path) -> int:
    """Return how many processes of a group the kernel has killed for lack of memory.

    0 if the kernel does not count them.
    """
    counts = [_text(folder / name) for name in ("memory.oom_control", "memory.events")]
    lines = [line.split() for text in counts for line in text.splitlines()]
    return sum(int(line[1]) for line in lines if line[0] == "oom_kill")


def own_place(proc: Path = Path("/proc/self")) -> Place:
    """Return the groups of this process, from ``mountinfo`` and ``cgroup`` in ``proc``."""
    own = {}
    for line in _text(proc / "cgroup").splitlines():
        _, names, path = line.split(":", 2)
        own.update(dict.fromkeys(names.split(","), path))
    v1: dict[str, Group] = {}
    v2 = None
    for line in _text(proc / "mountinfo").splitlines():
        fields, _, rest = line.partition(" - ")
        root, top = fields.split()[3:5]
        filesystem, _, options = rest.split(maxsplit=2)
        if filesystem == "cgroup2" and v2 is None:
            v2 = _group(root, top, own.get("", ""))
        elif filesystem == "cgroup":
            for name in set(CONTROLLERS) & set(options.split()[-1].split(",")) - v1.keys():
                group = _group(root, top, own.get(name, ""))
                v1.update({name: group} if group else {})
    return Place(v1, v2)


def _group(root: str, top: str, path: str) -> Group | None:
    """Return the group ``path`` in a tree whose part below ``root`` is mounted at ``top``."""
    if not PurePosixPath(path).is_relative_to(root):
        return None
    folder = Path(top) / PurePosixPath(path).relative_to(root)
    return Group(folder, Path(top)) if folder.is_dir() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int:
    try:
        return int(_text(path))
    except ValueError:
        return -1
