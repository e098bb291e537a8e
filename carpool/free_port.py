"""A port for a program that has to be told one before it listens."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

__all__ = ["free_port"]

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_GIVEN = 32768  # where the system does not say


def free_port() -> int:
    """A port of loopback that nobody has, and that the system gives nobody who does not name it.

    One that the system has given away and got back may be the end of another's connection by the
    time that it is needed.
    """
    first = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else _FIRST_GIVEN
    draw = random.Random()  # noqa: S311 - it need not be secret
    while True:
        port = draw.randrange(max(first // 2, 1024), first)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
