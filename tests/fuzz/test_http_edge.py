"""The HTTP edge under arbitrary bytes: cuts do not change their meaning, and nothing leaks."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.http.known_heads import KnownHeads
from carpool.http.server import Exchange, Limits, Server, serve
from tests.carpool.http.edge import CLOSE, Socketless, connect, echo, spoken
from tests.effort import scaled
from tests.fuzz.http_bytes import Sent, cuts, requests, streams
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMITS = Limits(head_bytes=400, body_bytes=150)
quick = settings(max_examples=scaled(300))


class Edge:
    """A server without sockets, and its event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.seen: list[Exchange] = []
        self.errors: list[dict[str, object]] = []
        self.loop.set_exception_handler(lambda _, context: self.errors.append(context))

    def run(
        self,
        *pieces: bytes,
        app: Callable[[Exchange], None] = echo,
        heads: KnownHeads | None = None,
    ) -> Socketless:
        """Return a client that has sent ``pieces``; ``seen`` has what the application got."""
        self.seen = []

        def look(exchange: Exchange) -> None:
            self.seen.append(exchange)
            app(exchange)

        server = Server(look, LIMITS, self.loop)
        server.heads = server.heads if heads is None else heads
        client = Socketless(server)
        client.feed(*pieces)
        self.turn()
        return client

    def turn(self) -> None:
        """Let the loop run all due callbacks."""
        self.loop.run_until_complete(asyncio.sleep(0))

    def read(self, *pieces: bytes, heads: KnownHeads | None = None) -> tuple[list[object], bool]:
        """Return what the application reads in ``pieces``, and whether the client was refused."""
        client = self.run(*pieces, heads=heads)
        read: list[object] = [
            (e.method, e.target, e.headers, e.body, e.keep_alive, e.chunked) for e in self.seen
        ]
        refused = bytes(client.sent).count(b"HTTP/1.1 4") + bytes(client.sent).count(b"HTTP/1.1 5")
        server = client._protocol.server
        client.hang_up()
        self.turn()
        assert 0 == server.held_bytes
        assert not self.errors
        return read, refused > 0


@pytest.fixture(scope="module")
def edge() -> Iterator[Edge]:
    """Yield one edge for all examples."""
    edge = Edge()
    yield edge
    edge.loop.close()


@quick
@given(sent=st.lists(requests(), max_size=4), data=st.data())
def test_requests_are_read_as_they_were_written(
    edge: Edge, sent: list[Sent], data: st.DataObject
) -> None:
    """Method, target, headers, body and order do not depend on how the network cuts the bytes."""
    pieces = data.draw(cuts(b"".join([one.raw for one in sent])))
    edge.run(*pieces)
    assert sent == [
        Sent(one.raw, seen.method, seen.target, list(seen.headers), seen.body)
        for one, seen in zip(sent, edge.seen, strict=True)
    ]


@quick
@given(raw=streams(), data=st.data())
def test_split_input_gives_same_result(edge: Edge, raw: bytes, data: st.DataObject) -> None:
    """The requests or the refusal are the same as if all bytes came in one read."""
    pieces = data.draw(cuts(raw))
    assert edge.read(raw) == edge.read(*pieces)
    assert edge.read(raw) == edge.read(*[raw[i : i + 1] for i in range(len(raw))])


@quick
@given(sent=st.lists(requests(), max_size=3), raw=streams(), data=st.data())
def test_known_heads_give_same_result(
    edge: Edge, sent: list[Sent], raw: bytes, data: st.DataObject
) -> None:
    """Known heads come from earlier requests, good or bad, on this connection or another."""
    heads, whole = KnownHeads(), [one.raw for one in sent]
    for read in (*whole, raw):
        edge.read(read, heads=heads)
    pieces = data.draw(st.permutations([*whole, *data.draw(cuts(raw))]))
    assert edge.read(*pieces) == edge.read(*pieces, heads=heads)


@quick
@given(count=st.integers(1, 12), data=st.data())
def test_responses_keep_order_of_requests(edge: Edge, count: int, data: st.DataObject) -> None:
    """The application may answer in any order and form."""
    raw = b"".join([b"GET /%d. HTTP/1.1\r\nhost: x\r\n\r\n" % i for i in range(count)])
    client = edge.run(raw, app=lambda _: None)
    for i in data.draw(st.permutations(range(count))):
        exchange = edge.seen[i]
        if data.draw(st.booleans()):
            echo(exchange)
        else:
            exchange.start(200)
            exchange.write(b"GET " + exchange.target.encode())
            exchange.end()
    sent = bytes(client.sent)
    places = [sent.find(b"GET /%d." % i) for i in range(count)]
    assert places == sorted(places)
    assert -1 not in places
    assert 0 == client._protocol.server.held_bytes


class Sockets:
    """A server that listens, and its event loop."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self._errors: list[dict[str, object]] = []
        self.runner.get_loop().set_exception_handler(lambda _, it: self._errors.append(it))
        self._server = self.runner.run(serve(echo, listen="127.0.0.1:0", limits=LIMITS))

    async def visit(self, raw: bytes) -> None:
        """Send ``raw`` and disconnect; the next client is served."""
        async with asyncio.timeout(HANG_S):
            reader, writer = await connect(self._server)
            writer.write(raw)
            writer.write_eof()
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
            answer = await spoken(self._server, b"GET /next HTTP/1.1\r\nhost: x\r\n" + CLOSE)
        assert answer.endswith(b"GET /next ")
        await wait_until_async(lambda: not self._server.connections)
        assert 0 == self._server.held_bytes
        assert not self._errors

    def close(self) -> None:
        """Stop the server and its loop."""
        self.runner.run(self._server.stop())
        self.runner.close()


@pytest.fixture(scope="module")
def sockets() -> Iterator[Sockets]:
    """Yield one server for all examples."""
    sockets = Sockets()
    yield sockets
    sockets.close()


@settings(max_examples=scaled(150))
@given(raw=streams())
def test_next_client_is_served_after_any_input(sockets: Sockets, raw: bytes) -> None:
    """Over real sockets every connection ends, the loop gets no error, and no memory is kept."""
    sockets.runner.run(sockets.visit(raw))
