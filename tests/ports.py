"""Ports for programs that have to be told one before they listen."""

from __future__ import annotations

import contextlib
import fcntl
import random
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["free_port", "watchdog_port"]

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A port that nobody has, and that the system gives nobody who does not ask for it by number.

    One that the system has given away and got back may be the end of another's connection by the
    time that it is needed.
    """
    first, draw = int(_RANGE.read_text().split()[0]), random.Random()
    while True:
        port = draw.randrange(first // 2, first)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@contextlib.contextmanager
def watchdog_port() -> Iterator[None]:
    """Hold port 8081 of the machine's own network, which every of-watchdog there binds.

    Waits until no other test has it, be it of another worker or another run of the suite.
    """
    with (Path(tempfile.gettempdir()) / "carpool-tests-8081.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
