"""A blocking HTTP/1.1 server: one thread per connection, TCP or a Unix socket, keep-alive.

It uses threads because callers are few (a watchdog or a sidecar) and the work is a model that
releases the interpreter lock: one request is read and decoded while another is computed. Knows
nothing of batches; an application converts a request to a response.
"""

from __future__ import annotations

import contextlib
import errno
import http
import io
import os
import select
import socket
import struct
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from carpool import errors
from carpool.address import Address
from carpool.errors import ConfigError, Problem
from watchdog_plugin import logs
from watchdog_plugin.reader import ProtocolError, ReadLimits, read_request

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from carpool.wire import Buffer
    from watchdog_plugin.reader import Request

__all__ = ["Response", "Server"]

_PHRASES = {status.value: status.phrase for status in http.HTTPStatus}
_BODILESS = frozenset({204, 304})
_JOINED_BYTES = 64 * 1024  # below this a copy is cheaper than a second system call
_STREAM_BYTES = 256 * 1024
_LINGER_S = 1.0
_LINGER_BYTES = 1024 * 1024
_BACKLOG = 1024
_TIMEVAL = struct.Struct("ll")
_NO_SOCKET = frozenset((errno.EBADF, errno.EINVAL, errno.ENOTSOCK))  # the listening socket is gone


class Response(NamedTuple):
    """The response of an application.

    Attributes:
        pieces: The rest of a streamed body, after ``body``; closed when the peer disconnects. None
            if the body is complete.
    """

    status: int
    body: Buffer
    content_type: str = "application/json"
    headers: Iterable[tuple[str, str]] = ()
    pieces: Generator[bytes] | None = None


class Server:
    """Listens, reads requests, and sends the responses of ``application``.

    Raises:
        ConfigError: It cannot listen on the address.
    """

    def __init__(
        self, address: Address, application: Callable[[Request], Response], limits: ReadLimits
    ) -> None:
        self._application = application
        self._limits = limits
        self._slots = threading.BoundedSemaphore(limits.connections)
        self._lock = threading.Lock()
        self._in_flight = 0
        self._last_end_s = time.monotonic()
        self._listener = _listen(address)
        host, port = ("", 0) if address.path else self._listener.getsockname()[:2]
        self.address = Address(host, port, address.path)

    def start(self) -> None:
        """Start accepting connections in the background."""
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    def quiet_s(self) -> float:
        """Return the seconds since a request was last in flight; 0 if one is."""
        with self._lock:
            return 0.0 if self._in_flight else time.monotonic() - self._last_end_s

    def close(self) -> None:
        """Stop listening, and remove the file of a Unix socket."""
        self._listener.close()
        if self.address.path:
            with contextlib.suppress(OSError):
                Path(self.address.path).unlink()

    def _accept(self) -> None:
        pause = threading.Event()
        while True:
            self._slots.acquire()
            try:
                connection, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                thread.start()
            except (OSError, RuntimeError) as error:  # closed, or out of descriptors or threads
                self._slots.release()
                if self._listener.fileno() < 0:
                    return
                if isinstance(error, OSError) and error.errno in _NO_SOCKET:
                    logs.say(
                        f"the function closed the socket that it is served on; exiting: {error}"
                    )
                    os._exit(1)  # it cannot be reached any more: a restart is the only way
                logs.say(f"cannot accept a connection: {logs.describe(error)}")
                pause.wait(0.1)

    def _serve(self, connection: socket.socket) -> None:
        try:
            _limit(connection, self._limits.idle_s)
            if not self.address.path:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._exchange(connection)
        except OSError:
            pass  # the peer has gone or is silent, so no response is possible
        finally:
            connection.close()
            self._slots.release()

    def _exchange(self, connection: socket.socket) -> None:
        def go_on() -> None:
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

        raw = io.FileIO(connection.fileno(), closefd=False)
        with io.BufferedReader(raw, _STREAM_BYTES) as stream:
            try:
                while self._next(connection, stream, go_on):
                    pass  # keep nothing of the last request while waiting for the next
            except ProtocolError as error:
                _send(connection, Response(error.status, errors.body(error)), keep_alive=False)
                _linger(connection)

    def _next(
        self,
        connection: socket.socket,
        stream: io.BufferedReader[io.FileIO],
        go_on: Callable[[], None],
    ) -> bool:
        """Read one request and respond; return whether another may follow."""
        request = read_request(stream, self._limits, go_on)
        if request is None:
            return False
        self._answer(connection, request)
        return request.keep_alive

    def _answer(self, connection: socket.socket, request: Request) -> None:
        with self._lock:
            self._in_flight += 1
        try:
            response = self._application(request)
            if response.pieces is not None:
                _stream(connection, response, keep_alive=request.keep_alive)
                return
            with_body = request.method != "HEAD"
            _send(connection, response, keep_alive=request.keep_alive, with_body=with_body)
        finally:
            with self._lock:
                self._in_flight -= 1
                self._last_end_s = time.monotonic()


def _limit(connection: socket.socket, idle_s: float) -> None:
    """Limit how long the peer may be silent, without the `poll` that `settimeout` adds to reads."""
    connection.settimeout(None)  # an author's code may have set another default
    seconds = int(idle_s)
    limit = _TIMEVAL.pack(seconds, int(1e6 * (idle_s - seconds)))
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connection.setsockopt(socket.SOL_SOCKET, option, limit)


def _send(
    connection: socket.socket, response: Response, *, keep_alive: bool, with_body: bool = True
) -> None:
    status, body = response.status, response.body
    framing = [] if status in _BODILESS else [f"content-length: {len(body)}"]
    head = _head(response, framing, keep_alive=keep_alive)
    if status in _BODILESS or not with_body:
        connection.sendall(head)
    elif len(body) < _JOINED_BYTES:
        connection.sendall(head + bytes(body))
    else:
        connection.sendall(head)
        connection.sendall(body)


def _head(response: Response, framing: list[str], *, keep_alive: bool) -> bytes:
    status = response.status
    lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, '')}"]
    if status not in _BODILESS:
        lines.append(f"content-type: {response.content_type}")
    lines += framing
    lines += [f"{name}: {value}" for name, value in response.headers]
    if not keep_alive:
        lines.append("connection: close")
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1", "replace")


def _stream(connection: socket.socket, response: Response, *, keep_alive: bool) -> None:
    """Send a body piece by piece; stop at the next piece if the peer has disconnected."""
    pieces = response.pieces
    assert pieces is not None  # noqa: S101  or it is not streamed
    left = select.poll()
    left.register(connection, select.POLLRDHUP)
    with contextlib.closing(pieces):
        if response.status in _BODILESS:
            connection.sendall(_head(response, [], keep_alive=keep_alive))
            return
        head = _head(response, ["transfer-encoding: chunked"], keep_alive=keep_alive)
        connection.sendall(head + _chunk(bytes(response.body)))
        for piece in pieces:
            if left.poll(0):
                return
            connection.sendall(_chunk(piece))
        connection.sendall(b"0\r\n\r\n")


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""


def _linger(connection: socket.socket) -> None:
    """Read unread bytes briefly, as closing with unread bytes could discard the response."""
    connection.shutdown(socket.SHUT_WR)
    connection.settimeout(_LINGER_S)
    left = _LINGER_BYTES
    while left > 0 and (data := connection.recv(_JOINED_BYTES)):
        left -= len(data)


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(socket.AF_UNIX if address.path else family, socket.SOCK_STREAM)
    try:
        if address.path:
            _remove_stale(address.path)
            listener.bind(address.path)
        else:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address.host, address.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        expected = "an address this process can listen on"
        problem = Problem("handler_listen", str(address), expected, logs.describe(error))
        raise ConfigError([problem]) from error
    return listener


def _remove_stale(path: str) -> None:
    """Remove the socket file of a process that was killed, but not that of a running one."""
    try:
        if not Path(path).is_socket():
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.connect(path)
    except ConnectionRefusedError:
        Path(path).unlink()
