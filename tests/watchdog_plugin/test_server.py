"""The server over real sockets: framing, keep-alive and limits."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from carpool.address import Address
from carpool.errors import ConfigError
from tests.waiting import HANG_S, wait_until
from tests.watchdog_plugin.processes import Client
from watchdog_plugin.reader import ReadLimits
from watchdog_plugin.server import Response, Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from watchdog_plugin.reader import Request

ANY = Address("127.0.0.1", 0, "")


def echo(request: Request) -> Response:
    """Respond with the target and body of the request."""
    if request.target == "/empty":
        return Response(204, b"")
    headers = [("x-target", request.target)]
    return Response(200, request.body, "text/plain", headers)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server on a free port."""
    server = Server(ANY, echo, ReadLimits(body_bytes=1_000_000, idle_s=HANG_S))
    server.start()
    yield server
    server.close()


def raw(server: Server, request: bytes) -> bytes:
    """Return all bytes that the server sends in response to ``request`` until it closes."""
    with socket.create_connection(server.address[:2], timeout=HANG_S) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_one_connection_carries_many_requests(server: Server) -> None:
    """Keep-alive works with lengths, chunks and responses without a body."""
    with Client(str(server.address)) as client:
        assert b"one" == client.request("POST", "/1", b"one").body
        assert 204 == client.request("GET", "/empty").status
        assert b"twothree" == client.request("POST", "/2", iter([b"two", b"three"])).body
        head = client.request("HEAD", "/3")
        assert ("/3", b"") == (head.headers["x-target"], head.body)
        large = b"x" * 900_000
        assert large == client.request("PUT", "/4", large).body


def test_client_receives_413_before_connection_closes(server: Server) -> None:
    """A client that has already sent the body receives the 413."""
    with Client(str(server.address)) as client:
        reply = client.request("POST", "/", b"x" * 1_000_001)
    assert 413 == reply.status
    assert b"handler_body_max_mib" in reply.body


def test_malformed_request_is_answered_and_connection_closes(server: Server) -> None:
    """The response has the error as JSON, and the connection closes."""
    answer = raw(server, b"rubbish\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"connection: close\r\n" in answer
    assert b'{"error": ' in answer


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    """Two requests in one packet get two responses."""
    answer = raw(server, b"GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\nconnection: close\r\n\r\n")
    assert 2 == answer.count(b"HTTP/1.1 200 OK")
    assert answer.index(b"x-target: /1") < answer.index(b"x-target: /2")


def test_a_client_may_wait_for_continue(server: Server) -> None:
    """100 Continue is sent before the body arrives."""
    with socket.create_connection(server.address[:2], timeout=HANG_S) as connection:
        connection.sendall(
            b"POST / HTTP/1.1\r\nexpect: 100-continue\r\nconnection: close\r\n"
            b"content-length: 2\r\n\r\n"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.sendall(b"ok")
        assert b"ok" == b"".join(iter(lambda: connection.recv(65536), b""))[-2:]


def test_idle_connection_holds_no_memory_of_last_request(server: Server) -> None:
    """Idle connections hold no memory of large requests and responses."""
    large = b"x" * 900_000
    with contextlib.ExitStack() as stack:
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        for _ in range(16):
            client = stack.enter_context(Client(str(server.address)))
            assert large == client.request("PUT", "/", large).body
        wait_until(lambda: server.quiet_s() > 0)
        wait_until(lambda: tracemalloc.get_traced_memory()[0] < 8 * len(large))


def test_a_silent_connection_is_closed() -> None:
    """A connection that is idle for too long is closed."""
    server = Server(ANY, echo, ReadLimits(idle_s=0.1))
    server.start()
    assert b"" == raw(server, b"")
    server.close()


def test_default_socket_timeout_does_not_apply_to_server() -> None:
    """A default timeout for sockets in the author's code does not apply to the server."""
    server = Server(ANY, echo, ReadLimits(idle_s=HANG_S))
    server.start()
    try:
        socket.setdefaulttimeout(1e-6)
        with Client(str(server.address)) as client:
            for _ in range(50):
                assert 200 == client.request("GET", "/").status
    finally:
        socket.setdefaulttimeout(None)
    server.close()


@pytest.mark.parametrize("arrived", [b"", b"5", b"5\r\n", b"5\r\nabc", b"5\r\nabcde"])
def test_late_chunk_closes_connection(arrived: bytes) -> None:
    """An incomplete chunked body gets no response."""
    server = Server(ANY, echo, ReadLimits(idle_s=0.1))
    server.start()
    head = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
    with socket.create_connection(server.address[:2], HANG_S) as connection:
        connection.sendall(head + arrived)
        assert b"" == connection.recv(100)
    server.close()


def test_connections_above_limit_wait() -> None:
    """A connection above the limit is served only after another one has closed."""
    server = Server(ANY, echo, ReadLimits(connections=1, idle_s=HANG_S))
    server.start()
    with Client(str(server.address)) as first:
        assert 200 == first.request("GET", "/").status
        second = http.client.HTTPConnection(*server.address[:2], timeout=0.3)
        second.request("GET", "/")
        with pytest.raises(TimeoutError):
            second.getresponse()
        second.close()
    with Client(str(server.address)) as third:
        assert 200 == third.request("GET", "/").status
    server.close()


def test_quiet_time_counts_from_the_last_answer(server: Server) -> None:
    """It grows while nothing is in flight and restarts with a request."""
    wait_until(lambda: server.quiet_s() > 0.05)
    began_s = time.monotonic()
    with Client(str(server.address)) as client:
        client.request("GET", "/")
    wait_until(lambda: 0.0 < server.quiet_s() < time.monotonic() - began_s)
    quiet_s = server.quiet_s()
    wait_until(lambda: server.quiet_s() > quiet_s)


def test_stale_socket_file_is_replaced_and_one_in_use_is_refused(tmp_path: Path) -> None:
    """The socket file of a killed process is replaced, and that of a running one is an error."""
    path = tmp_path / "s.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    server = Server(Address("", 0, str(path)), echo, ReadLimits())
    server.start()
    with Client(f"unix:{path}") as client:
        assert 200 == client.request("GET", "/").status
    with pytest.raises(ConfigError, match="handler_listen"):
        Server(Address("", 0, str(path)), echo, ReadLimits())
    server.close()
    assert not path.exists()


def test_an_address_in_use_is_a_clear_error(server: Server) -> None:
    """The message names the setting and the address."""
    with pytest.raises(ConfigError, match=f"handler_listen = '127.0.0.1:{server.address.port}'"):
        Server(server.address, echo, ReadLimits())
