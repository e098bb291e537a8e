"""What a tree of processes has used, read from /proc."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

__all__ = ["Usage", "cpu_s", "of_tree"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PARENT, _USER, _SYSTEM = 1, 11, 12  # fields of /proc/PID/stat after the command's name
_KB = 1024


class Usage(NamedTuple):
    """CPU time so far of all processes alive, and the memory they hold now."""

    cpu_s: float
    rss_mb: float
    processes: int


def of_tree(root: int) -> Usage:
    """The usage of process ``root`` and all its descendants.

    Memory is proportional (PSS): pages that processes share are counted once.
    """
    stats = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (stat := _stat(folder)):
            stats[int(folder.name)] = stat
    tree = {root}
    while grown := {p for p, s in stats.items() if int(s[_PARENT]) in tree} - tree:
        tree |= grown
    alive = [pid for pid in tree if pid in stats]
    ticks = sum(int(stats[pid][_USER]) + int(stats[pid][_SYSTEM]) for pid in alive)
    memory_kb = sum(_memory_kb(pid) for pid in alive)
    return Usage(ticks / _TICKS_PER_S, memory_kb / _KB, len(alive))


def cpu_s(pid: int) -> float:
    """CPU seconds that process ``pid`` alone has used; 0 if there is none."""
    stat = _stat(Path(f"/proc/{pid}"))
    return (int(stat[_USER]) + int(stat[_SYSTEM])) / _TICKS_PER_S if stat else 0.0


def _stat(folder: Path) -> list[str] | None:
    try:
        return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None  # it ended meanwhile


def _memory_kb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
