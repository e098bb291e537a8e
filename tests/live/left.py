"""Find what a stack leaves behind: processes, listening ports, control groups, temporary files."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["leaves_nothing"]

_CGROUPS = "/sys/fs/cgroup"
_LOOK_S = 0.5


@contextlib.contextmanager
def leaves_nothing(folder: Path) -> Iterator[list[int]]:
    """Check that what is started in ``folder`` leaves only the files that it has written there.

    Yields:
        A list for the ports to check.
    """
    ports: list[int] = []
    seen: set[str] = set()  # its run folders, by whose names it calls its control groups
    over = threading.Event()
    scratch = Path(tempfile.mkdtemp(prefix="chaos-", dir="/tmp"))

    def look() -> None:
        while not over.wait(_LOOK_S):
            seen.update(path.name for path in scratch.iterdir())

    looker = threading.Thread(target=look)
    looker.start()
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(scratch)
    try:
        yield ports
        wait_until(lambda: not _processes(folder), what="the end of every process")
        wait_until(lambda: not list(scratch.iterdir()), what=f"nothing left in {scratch}")
        assert not [name for name in _cgroups() if any(run in name for run in seen)]
        assert not [port for port in ports if _listens(port)]
    finally:
        over.set()
        looker.join()
        os.environ.pop("TMPDIR")
        if before is not None:
            os.environ["TMPDIR"] = before
        shutil.rmtree(scratch, ignore_errors=True)


def _processes(folder: Path) -> list[str]:
    """Return the commands of the processes that run in ``folder``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def _cgroups() -> Iterator[str]:
    for _, names, _ in os.walk(_CGROUPS):  # passes over what vanishes meanwhile
        yield from names


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return not probe.connect_ex(("127.0.0.1", port))
