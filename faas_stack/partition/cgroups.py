"""Where this process is in the trees of control groups, and what limits hold for it there.

Version 1 has a tree for each controller, version 2 one for all; a machine may have both, each with
some of the controllers. Groups of ours are made below the one that this process is in, so that
whatever limits it limits them, too. Reads only; `cgroup_v1` and `cgroup_v2` make groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from carpool.errors import CarpoolError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["CONTROLLERS", "Group", "Limits", "Place", "Unusable", "own_place"]

CONTROLLERS = ("cpu", "cpuset", "memory")
# What has used its quota waits for the next period: after 2.5 of 10 ms, say, not after 25 of 100,
# as with the kernel's own, which no objective of 100 ms would survive.
_PERIOD_US = 10_000
_LONG_PERIOD_US = 100_000  # for the smallest shares
_LEAST_QUOTA_US = 1000  # the kernel takes no less
_UNLIMITED_V1 = 2**62  # version 1 writes "no limit" as a number of about this size


class Unusable(CarpoolError):
    """Groups cannot be made here; the message says why, and the mend."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a group is held to.

    Attributes:
        cpu: most cores, by quota; None: no quota.
        cores: the cores it runs on; none: any.
        memory_bytes: most memory; None: no bound.
    """

    cpu: float | None = None
    cores: tuple[int, ...] = ()
    memory_bytes: int | None = None

    @property
    def period_us(self) -> int:
        """Over which the quota holds."""
        fits = self.cpu is None or self.cpu * _PERIOD_US >= _LEAST_QUOTA_US
        return _PERIOD_US if fits else _LONG_PERIOD_US

    @property
    def quota_us(self) -> int | None:
        """Of each period."""
        if self.cpu is None:
            return None
        return max(_LEAST_QUOTA_US, round(self.cpu * self.period_us))


@dataclass(frozen=True, slots=True)
class Group:
    """A group, and the top of the tree it is in."""

    folder: Path
    top: Path

    def upwards(self) -> Iterator[Path]:
        """The group and those above it."""
        folder = self.folder
        yield folder
        while folder != self.top:
            folder = folder.parent
            yield folder


@dataclass(frozen=True, slots=True)
class Place:
    """The groups that this process is in.

    Attributes:
        v1: by controller, as far as version 1 has it.
        v2: in the tree of version 2, if there is one.
    """

    v1: Mapping[str, Group] = field(default_factory=dict)
    v2: Group | None = None

    def cpu(self) -> float:
        """Cores that quotas leave this process."""
        found = [math.inf]
        if group := self.v1.get("cpu"):
            for folder in group.upwards():
                quota, period = (_number(folder / f"cpu.cfs_{n}_us") for n in ("quota", "period"))
                found += [quota / period] if quota > 0 and period > 0 else []
        for folder in self.v2.upwards() if self.v2 else ():
            quota_text, _, period_text = _text(folder / "cpu.max").partition(" ")
            found += [int(quota_text) / int(period_text)] if quota_text.isdecimal() else []
        return min(found)

    def memory_bytes(self) -> float:
        """Memory that limits leave this process."""
        found = [math.inf]
        if group := self.v1.get("memory"):
            sizes = [_number(folder / "memory.limit_in_bytes") for folder in group.upwards()]
            found += [size for size in sizes if 0 < size < _UNLIMITED_V1]
        for folder in self.v2.upwards() if self.v2 else ():
            text = _text(folder / "memory.max")
            found += [int(text)] if text.isdecimal() else []
        return min(found)


def own_place(proc: Path = Path("/proc/self")) -> Place:
    """Where this process is, by ``mountinfo`` and ``cgroup`` in ``proc``."""
    own = {}
    for line in _text(proc / "cgroup").splitlines():
        _, names, path = line.split(":", 2)
        own.update(dict.fromkeys(names.split(","), path))
    v1: dict[str, Group] = {}
    v2 = None
    for line in _text(proc / "mountinfo").splitlines():
        fields, _, rest = line.partition(" - ")
        root, top = fields.split()[3:5]
        kind, _, options = rest.split(maxsplit=2)
        if kind == "cgroup2" and v2 is None:
            v2 = _group(root, top, own.get("", ""))
        elif kind == "cgroup":
            for name in set(CONTROLLERS) & set(options.split()[-1].split(",")) - v1.keys():
                group = _group(root, top, own.get(name, ""))
                v1.update({name: group} if group else {})
    return Place(v1, v2)


def _group(root: str, top: str, path: str) -> Group | None:
    """The group ``path`` where the part of the tree from ``root`` on is mounted at ``top``."""
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
