"""Finding and ending processes that belong to a folder, whatever started them.

Every process of an instance, however deep below it and in whatever session, inherits a TMPDIR in
the provider's run folder; that marks it. Where instances have control groups, whatever is in one
belongs to it. Run as a program (``leftovers.py FOLDER [GROUP...]``) this is the provider's keeper:
it waits for its standard input to end, which happens when the provider is gone, however it went;
then it ends what the provider left and removes folder and groups. Standard library only, and no
import of ours: the keeper is to be small and to start fast.
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

__all__ = ["end_all", "end_group", "marked", "remove_group"]

_PROC = Path("/proc")
_PATIENCE_S = 5.0
_LOOK_AGAIN_S = 0.01


def marked(folder: str) -> list[int]:
    """The processes whose TMPDIR is ``folder`` or below it (Linux; elsewhere none is found)."""
    exact, below = f"TMPDIR={folder}\0".encode(), f"TMPDIR={folder}/".encode()
    found = []
    for entry in _PROC.glob("[0-9]*"):
        try:
            env = b"\0" + (entry / "environ").read_bytes()
        except OSError:  # gone meanwhile, or another user's
            continue
        if b"\0" + exact in env or b"\0" + below in env:
            found.append(int(entry.name))
    return found


def end_all(folder: str) -> None:
    """Kill every process marked with ``folder``, also those that are started meanwhile."""
    seen: set[int] = set()
    while fresh := set(marked(folder)) - seen:
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
    end_all(folder)
    for group in groups:
        remove_group(group)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _keep(sys.argv[1], sys.argv[2:])
