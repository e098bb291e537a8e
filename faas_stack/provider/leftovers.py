"""Finding and ending processes that belong to a folder, whoever started them.

Every process of an instance, however deep below it and in whatever session, inherits a TMPDIR in
the provider's run folder; that marks it. Run as a program (``leftovers.py FOLDER``) this is the
provider's keeper: it waits for its standard input to end, which happens when the provider is gone,
however it went; then it ends what the provider left and removes the folder. Standard library only,
and no import of ours: the keeper is to be small and to start fast.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path

__all__ = ["end_all", "marked"]

_PROC = Path("/proc")


def marked(folder: str) -> list[int]:
    """The processes whose TMPDIR is ``folder`` or below it (Linux; elsewhere none is found)."""
    exact, below = f"TMPDIR={folder}\0".encode(), f"TMPDIR={folder}/".encode()
    found = []
    for entry in _PROC.glob("[0-9]*"):
        try:
            env = b"\0" + (entry / "environ").read_bytes()
        except OSError:  # gone meanwhile, or somebody else's
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


def _keep(folder: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_all(folder)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _keep(sys.argv[1])
