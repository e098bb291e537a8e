"""Finding and ending what processes have left behind, in any session.

All descendants of a process inherit its environment: a variable marks them, by its value or, if
that is a folder, by one below it. Where there are control groups, all processes in one belong to
it. Run as a program (``leftovers.py FOLDER [GROUP...]``) this is a keeper: it waits for its
standard input to end, which happens when the process that started it is gone for any reason. Then
it ends the processes that have their TMPDIR in the folder or are in the groups, and removes both.
It imports the standard library only, so that the keeper is small and starts fast.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

__all__ = ["end_group", "end_marked", "marked", "remove_group"]

_PROC = Path("/proc")
_PATIENCE_S = 5.0
_LOOK_AGAIN_S = 0.01


def marked(mark: str) -> list[int]:
    """Return the processes with ``NAME=VALUE`` in their environment, or a value of ``VALUE/...``.

    Empty on systems other than Linux.
    """
    exact, below = f"\0{mark}\0".encode(), f"\0{mark}/".encode()
    pids = []
    for entry in _PROC.glob("[0-9]*"):
        try:
            env = b"\0" + (entry / "environ").read_bytes()
        except OSError:  # gone meanwhile, or another user's
            continue
        if exact in env or below in env:
            pids.append(int(entry.name))
    return pids


def end_marked(mark: str) -> None:
    """Kill every process with a mark, including those started meanwhile."""
    seen: set[int] = set()
    while fresh := set(marked(mark)) - seen:
        seen |= fresh
        for pid in fresh:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def end_group(folder: str) -> None:
    """Kill every process in a control group, including those started meanwhile."""
    seen: set[int] = set()
    with contextlib.suppress(OSError):
        while fresh := set(map(int, (Path(folder) / "cgroup.procs").read_text().split())) - seen:
            seen |= fresh
            for pid in fresh - {0, os.getpid()}:  # 0: in another namespace, out of our reach
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)


def remove_group(folder: str) -> bool:
    """End the processes of a control group and its subgroups, and remove the groups.

    Return whether that worked. The group of this process stays. Blocks for some seconds at most, as
    a group can be removed only once the last process in it is reaped.
    """
    group = Path(folder)
    below = []
    with contextlib.suppress(OSError):  # it may vanish at any time
        below = [entry.path for entry in os.scandir(group) if entry.is_dir(follow_symlinks=False)]
    removed = [not _is_home(Path(path)) and remove_group(path) for path in below]
    until_s = time.monotonic() + (_PATIENCE_S if all(removed) else 0)
    while True:
        end_group(folder)
        try:
            group.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            if time.monotonic() >= until_s:
                return False
            select.select([], [], [], _LOOK_AGAIN_S)
        else:
            return True


def _is_home(group: Path) -> bool:
    """Return whether this process is in the group, as provider and keeper may be in a subgroup."""
    try:
        return str(os.getpid()) in (group / "cgroup.procs").read_text().split()
    except OSError:
        return False


def _keep(folder: str, groups: list[str]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_marked(f"TMPDIR={folder}")
    for group in groups:
        remove_group(group)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _keep(sys.argv[1], sys.argv[2:])
