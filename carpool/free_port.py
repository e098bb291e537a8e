"""A port for a program that has to be told one before it listens."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

from carpool.errors import ConfigError, Problem

__all__ = ["free_port", "is_free"]

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_GIVEN = 32768  # where the system does not say
_LOWEST = 1024  # those below are for the system's own services
_TRIES = 100


def free_port() -> int:
    """A port of loopback that nobody has, and that the system gives nobody who does not name it.

    One that the system has given away and got back may be the end of another's connection by the
    time that it is needed. It is taken only where the system gives all ports away.

    Raises:
        ConfigError: none was found.
    """
    first = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else _FIRST_GIVEN
    lowest = max(first // 2, _LOWEST)
    draw = random.Random()  # noqa: S311 - it need not be secret
    for _ in range(_TRIES):
        port = draw.randrange(lowest, first) if lowest < first else 0
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)) as listener:
            found: int = listener.getsockname()[1]
            return found
    ports = f"{lowest} to {first - 1}" if lowest < first else "any"
    hint = "stop the program that listens there, or raise net.ipv4.ip_local_port_range"
    raise ConfigError([Problem("port of 127.0.0.1", ports, "one that is free", hint)])


def is_free(port: int) -> bool:
    """Whether a server could listen at this port of loopback now."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
