"""Finding a port for a program that must be given one before it listens."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

from carpool.errors import ConfigError, Problem

__all__ = ["free_port", "is_free"]

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_GIVEN = 32768  # default if the system does not report it
_LOWEST = 1024  # those below are for the system's own services
_TRIES = 100


def free_port() -> int:
    """Return a free loopback port outside the range from which the system assigns ports.

    A port in that range may be assigned to another connection before it is used. Such a port is
    returned only if the system assigns all ports.

    Raises:
        ConfigError: no free port was found.
    """
    first = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else _FIRST_GIVEN
    lowest = max(first // 2, _LOWEST)
    draw = random.Random()  # noqa: S311 - it need not be secret
    for _ in range(_TRIES):
        port = draw.randrange(lowest, first) if lowest < first else 0
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)) as listener:
            bound: int = listener.getsockname()[1]
            return bound
    ports = f"{lowest} to {first - 1}" if lowest < first else "any"
    hint = "stop the program that listens there, or raise net.ipv4.ip_local_port_range"
    raise ConfigError([Problem("port of 127.0.0.1", ports, "one that is free", hint)])


def is_free(port: int) -> bool:
    """Return whether a server could listen on this loopback port now."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
