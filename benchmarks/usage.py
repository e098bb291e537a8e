"""Read the resource usage of a process tree from /proc."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

__all__ = ["Process", "Usage", "cpu_s", "of_tree", "processes"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PARENT, _USER, _SYSTEM = 1, 11, 12  # fields of /proc/PID/stat after the command's name
_KB = 1024


class Usage(NamedTuple):
    """CPU time so far of all living processes, and their current memory."""

    cpu_s: float
    rss_mb: float
    processes: int


class Process(NamedTuple):
    """A process's command line, and its memory: proportional (PSS) and resident (RSS)."""

    command: str
    pss_mb: float
    rss_mb: float


def of_tree(root: int) -> Usage:
    """Return the usage of process ``root`` and all its descendants.

    Memory is proportional (PSS): pages that processes share are counted once.
    """
    tree = _tree(root)
    ticks = sum(int(stat[_USER]) + int(stat[_SYSTEM]) for stat in tree.values())
    memory_kb = sum(_memory_kb(pid, "Pss:") for pid in tree)
    return Usage(ticks / _TICKS_PER_S, memory_kb / _KB, len(tree))


def processes(root: int) -> list[Process]:
    """Return process ``root`` and all its descendants, with their current memory."""
    return [
        Process(_command(pid), *(_memory_kb(pid, key) / _KB for key in ("Pss:", "Rss:")))
        for pid in _tree(root)
    ]


def cpu_s(pid: int) -> float:
    """Return the CPU seconds used by process ``pid`` alone, or 0 if it does not exist."""
    stat = _stat(Path(f"/proc/{pid}"))
    return (int(stat[_USER]) + int(stat[_SYSTEM])) / _TICKS_PER_S if stat else 0.0


def _tree(root: int) -> dict[int, list[str]]:
    """Return the fields of /proc/PID/stat for a process and its descendants."""
    stats = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (stat := _stat(folder)):
            stats[int(folder.name)] = stat
    tree = {root}
    while grown := {p for p, s in stats.items() if int(s[_PARENT]) in tree} - tree:
        tree |= grown
    return {pid: stats[pid] for pid in tree if pid in stats}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""  # it ended meanwhile


def _stat(folder: Path) -> list[str] | None:
    try:
        return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None  # it ended meanwhile


def _memory_kb(pid: int, key: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(key))
