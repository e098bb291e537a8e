"""Notices from a child process that it is ready, as datagrams in systemd's protocol.

A notice is only a hint that saves a pause between two probes. It is not trusted without a probe,
and a process that sends none is probed as before.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

__all__ = ["VARIABLE", "ReadyNotices", "tell"]

VARIABLE = "NOTIFY_SOCKET"
_READY = b"READY=1"
_LONGEST = 4096


def tell(env: Mapping[str, str] = os.environ) -> None:
    """Report that this process is ready, if the process that started it wants to know."""
    address = env.get(VARIABLE, "")
    if not address.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(0)
        abstract = address.startswith("@")
        sender.sendto(_READY, f"\0{address[1:]}" if abstract else address)


class ReadyNotices:
    """Receives the notices of processes that are ready, until it is closed.

    Args:
        path: path of the socket to create; processes get it as `VARIABLE`.
        heard: called for each notice.
        loop: the running loop.

    Raises:
        OSError: the socket cannot be created.
    """

    def __init__(
        self, path: str, heard: Callable[[], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._path = Path(path)
        self._path.unlink(missing_ok=True)
        self._heard, self._loop = heard, loop
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.settimeout(0)
            self._socket.bind(path)
        except OSError:
            self._socket.close()
            raise
        loop.add_reader(self._socket, self._read)

    def close(self) -> None:
        """Stop receiving, and remove the socket."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            if _READY in self._socket.recv(_LONGEST).split(b"\n"):
                self._heard()
