"""Finding and ending what processes have left behind, in whatever session it runs.

Whatever a process starts, however deep below it, inherits its environment: a variable marks it, by
its value or, if that is a folder, by one below it. Where there are control groups, whatever is in
one belongs to it. Run as a program (``leftovers.py FOLDER [GROUP...]``) this is a keeper: it waits
for its standard input to end, which happens when the process that started it is gone, however it
went; then it ends what has its TMPDIR in the folder or is in the groups, and removes them. Standard
library only, and no import of ours: the keeper is to be small and to start fast.
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
    """The processes with ``NAME=VALUE`` in their environment, or a value of ``VALUE/...``.

    On Linux; elsewhere none is found.
    """
    exact, below = f"\0{mark}\0".encode(), f"\0{mark}/".encode()
    found = []
    for entry in _PROC.glob("[0-9]*"):
        try:
            env = b"\0" + (entry / "environ").read_bytes()
        except OSError:  # gone meanwhile, or another user's
            continue
        if exact in env or below in env:
            found.append(int(entry.name))
    return found


def end_marked(mark: str) -> None:
    """Kill every process with a mark, also those that are started meanwhile."""
    seen: set[int] = set()
    while fresh := set(marked(mark)) - seen:
        seen |= fresh
        for pid in fresh:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def end_group(folder: str) -> None:
    """Kill every process in a control group, also those that are started meanwhile."""
    seen: set[int] = set()
    with contextlib.suppress(OSError):
        while fresh := set(map(int, (Path(folder) / "cgroup.procs").read_text().split())) - seen:
            seen |= fresh
            for pid in fresh - {0, os.getpid()}:  # 0: in another namespace, out of our reach
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)


def remove_group(folder: str) -> bool:
    """End what is in a control group and those below it, and remove them; whether that worked.

    The one that this process is in stays. Blocks for some seconds at most: a group can be removed
    when the last process in it is reaped.
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
    """Whether this process is in it: the provider and its keeper may be in one below their own."""
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
