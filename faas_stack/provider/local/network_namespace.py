"""A network namespace per instance, so that several of-watchdogs can run on one machine.

of-watchdog binds its metrics to port 8081, which cannot be configured, so two of them cannot share
a network. Run as a program (``network_namespace.py COMMAND...``), this module moves to a new
network namespace (as an ordinary user: through a new user namespace that maps the user to itself),
brings the loopback interface up and becomes COMMAND. The provider talks to the instance through a
Unix socket, which works across namespaces; nothing else does, so the function has no outside
network. Uses the standard library only and none of our modules, as it starts before every instance.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import sys

__all__ = ["command"]

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


def command(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that runs ``argv`` in its own network namespace."""
    return (sys.executable, "-I", "-S", os.path.realpath(__file__), *argv)


def _unshare(flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "unshare")


def _enter() -> None:
    user, group = os.geteuid(), os.getegid()
    try:
        _unshare(_CLONE_NEWNET)
    except OSError as error:
        if error.errno != errno.EPERM:
            raise
        _unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
        from pathlib import Path  # noqa: PLC0415 - it takes as long as all the rest

        this = Path("/proc/self")
        (this / "setgroups").write_text("deny")
        (this / "uid_map").write_text(f"{user} {user} 1")
        (this / "gid_map").write_text(f"{group} {group} 1")


def _bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(link, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(link, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


if __name__ == "__main__":
    _enter()
    _bring_loopback_up()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - becoming the command is the purpose
