"""Ends connections to a machine that is lost: switched off, cut off, or a pod without its network.

Such a machine sends no notice, so a call that it has would wait until its time limit. A process
that is only stopped or busy is not lost: its kernel still acknowledges data.
"""

from __future__ import annotations

import errno
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

__all__ = ["end_if_lost", "is_lost"]

_LOST_AFTER_MS = 10_000
_IDLE_S, _INTERVAL_S, _PROBES = 4, 2, 3  # which add up to that time
_LOST = frozenset((errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH))


def end_if_lost(transport: asyncio.BaseTransport) -> None:
    """Have the kernel end a connection ten seconds after the peer's kernel was last heard.

    Nothing changes for Unix sockets and loopback: their peers are on this machine. Linux would also
    end a connection whose peer has not read for as long, and such a peer may just be busy.
    """
    peer = transport.get_extra_info("socket")
    if peer is None or peer.family == socket.AF_UNIX or _is_loopback(transport):
        return
    with suppress(OSError):  # it may have been closed already
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, _IDLE_S),
            (socket.TCP_KEEPINTVL, _INTERVAL_S),
            (socket.TCP_KEEPCNT, _PROBES),
            (socket.TCP_USER_TIMEOUT, _LOST_AFTER_MS),  # of what was sent and not acknowledged
        ):
            peer.setsockopt(socket.IPPROTO_TCP, option, value)


def is_lost(error: Exception | None) -> bool:
    """Return whether a connection ended because its peer's machine is lost."""
    return isinstance(error, OSError) and error.errno in _LOST


def _is_loopback(transport: asyncio.BaseTransport) -> bool:
    name = transport.get_extra_info("peername")
    return bool(name) and (name[0] == "::1" or name[0].startswith("127."))
