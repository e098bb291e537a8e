"""A relay to the API server that can be cut like a network, without notice to either side."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import yaml

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

__all__ = ["Relay"]

_PIECE = 1 << 16
_RESET = struct.pack("ii", 1, 0)  # closing drops what was not sent yet, and says so by a reset


class Relay:
    """TCP relay to the server of a kubeconfig.

    Args:
        kubeconfig: kubeconfig of the cluster.
        folder: folder for the kubeconfig that uses the relay.

    Attributes:
        kubeconfig: kubeconfig with the relay as its server.
        shut: whether new connections are closed at once.
    """

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        (cluster,) = config["clusters"]
        self._target = urlsplit(cluster["cluster"]["server"])
        self._listener = socket.create_server(("127.0.0.1", 0))
        cluster["cluster"]["server"] = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        self.kubeconfig = folder / "relayed.conf"
        self.kubeconfig.write_text(yaml.safe_dump(config))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.shut = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shut = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> int:
        """Close all connections, and return their number."""
        with self._lock:
            ended = list(self._open)
        for each in ended:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        return len(ended) // 2

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                self._connect(self._listener.accept()[0])

    def _connect(self, client: socket.socket) -> None:
        where = (str(self._target.hostname), int(self._target.port or 443))
        try:
            if self.shut:
                raise ConnectionRefusedError
            server = socket.create_connection(where)
        except OSError:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            client.close()
            return
        with self._lock:
            self._open |= {client, server}
        for pair in ((client, server), (server, client)):
            threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(_PIECE):
                sink.sendall(piece)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        with self._lock:
            if source in self._open:
                self._open.discard(source)
                source.close()
