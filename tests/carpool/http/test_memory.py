"""The memory that hostile clients can make a server keep is bounded, and counted to the byte."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import TYPE_CHECKING

from carpool.http.server import Exchange, Limits, Server
from tests.carpool.http.edge import CLOSE, Socketless, connect, deaf_client, echo, serving, spoken
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import Callable

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
BODY = bytes(60_000)
UPLOAD = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n" + BODY
NARROW = Limits(held_bytes=200_000, body_bytes=100_000)


def numbered(count: int, body: bytes = b"") -> bytes:
    """Return pipelined requests, each with its number as target."""
    head = b"POST /%d HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
    return b"".join([head % (i, len(body)) + body for i in range(count)])


def in_order(answers: bytes, count: int) -> bool:
    """Return whether all responses to `numbered` requests are present and in order."""
    places = [answers.find(b"POST /%d " % i) for i in range(count)]
    return -1 not in places and places == sorted(places)


def test_hundreds_of_pipelined_requests_are_answered_in_order() -> None:
    """Pipelined requests are answered in order, even if there are too many to handle at once."""

    async def run() -> bytes:
        async with serving(limits=Limits()) as server:
            return await spoken(server, numbered(700, b"x" * 500) + GET[:-2] + CLOSE)

    assert in_order(asyncio.run(run()), 700)


def test_requests_handed_over_per_connection_are_limited() -> None:
    """Further requests wait, unread where possible, and all are handled in order."""

    async def run() -> None:
        waiting: list[Exchange] = []
        server = Server(waiting.append, Limits(), asyncio.get_running_loop())
        client = Socketless(server)
        client.feed(numbered(1000))
        most = len(waiting)
        assert 1 < most < 100
        assert not client.reading
        for i in range(1000):
            await wait_until_async(lambda: waiting)
            assert len(waiting) <= most
            assert f"/{i}" == waiting[0].target
            echo(waiting.pop(0))
        assert client.reading
        assert in_order(bytes(client.sent), 1000)
        assert 0 == server.held_bytes

    asyncio.run(run())


def test_application_is_not_called_while_it_answers() -> None:
    """The application is not called while it answers a list of exchanges."""
    answering = False

    async def run() -> None:
        waiting: list[Exchange] = []

        def app(exchange: Exchange) -> None:
            assert not answering
            waiting.append(exchange)

        nonlocal answering
        server = Server(app, Limits(), asyncio.get_running_loop())
        client = Socketless(server)
        client.feed(numbered(200))
        while waiting:
            answering = True
            for exchange in waiting:
                echo(exchange)
            answering = False
            waiting.clear()
            await asyncio.sleep(0)
        assert in_order(bytes(client.sent), 200)

    asyncio.run(run())


def test_client_that_does_not_read_responses_is_not_read() -> None:
    """A client that sends requests without reading responses costs only a few buffers."""

    async def run() -> None:
        asked = 0

        def app(exchange: Exchange) -> None:
            nonlocal asked
            asked += 1
            exchange.reply(200, bytes(10_000))

        pieces = [GET * 1000] * 100
        async with serving(app, Limits()) as server, deaf_client(server, *pieces):
            await wait_until_async(lambda: server.held_bytes > 50_000)
            for _ in range(20):
                await asyncio.sleep(0.005)
            assert asked < 10_000
            assert server.held_bytes < 20_000_000

    asyncio.run(run())


async def hold(server: Server, asked: list[Exchange], clients: int) -> list[asyncio.StreamWriter]:
    """Upload a body from each of ``clients``, which the application keeps."""
    writers = []
    for _ in range(clients):
        _, writer = await connect(server)
        writers.append(writer)
        writer.write(UPLOAD)
        before = len(asked)
        await wait_until_async(lambda before=before: len(asked) > before)  # type: ignore[misc]
    return writers


def test_uploads_beyond_memory_limit_are_refused_but_probes_served() -> None:
    """Uploads get 503 with Retry-After until memory is free again; probes are still served."""

    async def run() -> None:
        asked: list[Exchange] = []

        def app(exchange: Exchange) -> None:
            if exchange.method == "GET":
                exchange.reply(200)
            else:
                asked.append(exchange)

        async with serving(app, NARROW) as server, asyncio.timeout(HANG_S):
            writers = await hold(server, asked, 3)
            refused = await spoken(server, UPLOAD)
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1\r\n" in refused
            assert 3 == len(asked)
            probe = await spoken(server, GET[:-2] + CLOSE)
            assert probe.startswith(b"HTTP/1.1 200 ")
            for exchange in asked:
                exchange.reply(200)
            writers += await hold(server, asked, 1)
            for writer in writers:
                writer.close()

    asyncio.run(run())


def counted(app: Callable[[Exchange], None], *pieces: bytes) -> tuple[int, bytes]:
    """Return the bytes held for a client after ``pieces``, and the response so far."""

    async def run() -> tuple[int, bytes]:
        server = Server(app, NARROW, asyncio.get_running_loop())
        client = Socketless(server)
        client.feed(*pieces)
        held_bytes = server.held_bytes
        client.hang_up()
        await asyncio.sleep(0)
        assert 0 == server.held_bytes
        return held_bytes, bytes(client.sent)

    return asyncio.run(run())


def never(exchange: Exchange) -> None:
    """Never answer."""
    del exchange


def test_all_held_data_is_counted() -> None:
    """Partial heads and bodies, whole requests and waiting responses are counted."""
    assert (9, b"") == counted(never, GET[:9])
    assert (len(UPLOAD) - 1, b"") == counted(never, UPLOAD[:40_000], UPLOAD[40_000:-1])
    assert counted(never, UPLOAD)[0] > len(UPLOAD)
    assert (0, b"") == counted(never, b"\r\n" * 1000)

    def second_first(exchange: Exchange) -> None:
        if exchange.target == "/1":
            exchange.reply(200, BODY)

    assert counted(second_first, numbered(2))[0] > len(BODY)


def test_bodies_that_do_not_end_are_refused_at_the_limit() -> None:
    """A body is counted as it arrives, whatever its announced length; other uploads continue."""

    async def run() -> None:
        server = Server(never, NARROW, asyncio.get_running_loop())
        clients = [Socketless(server) for _ in range(3)]
        for client in clients:
            client.feed(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 90000\r\n\r\n")
        for _ in range(89):
            for client in clients:
                client.feed(bytes(1000))
                assert server.held_bytes <= NARROW.held_bytes + 1000
        told = [bytes(client.sent[:12]) for client in clients if client.sent]
        assert [b"HTTP/1.1 503"] == told
        for client in clients:
            client.hang_up()
        await asyncio.sleep(0)
        assert 0 == server.held_bytes

    asyncio.run(run())


def test_the_limit_leaves_room_for_the_largest_body() -> None:
    """The largest permitted body can be held, however small the memory limit."""

    async def run() -> bytes:
        async with serving(limits=Limits(held_bytes=1, body_bytes=60_000)) as server:
            return await spoken(server, UPLOAD + GET[:-2] + CLOSE)

    assert 2 == asyncio.run(run()).count(b"HTTP/1.1 200 ")


def test_an_idle_connection_keeps_nothing_of_its_last_request() -> None:
    """An idle connection uses little memory after a large request."""

    async def run() -> int:
        server = Server(lambda it: it.reply(200), Limits(), asyncio.get_running_loop())
        client = Socketless(server)
        client.feed(GET)
        tracemalloc.start()
        client.feed(
            b"POST / HTTP/1.1\r\nhost: %b\r\ncontent-length: 9000000\r\n\r\n" % (b"a" * 50_000)
        )
        for _ in range(90):
            client.feed(bytes(100_000))
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert 2 == client.sent.count(b"HTTP/1.1 200 ")
        return taken

    assert asyncio.run(run()) < 20_000


def test_tiny_pipelined_requests_count_for_what_they_cost() -> None:
    """A request of 27 bytes is counted as the kilobyte that it takes in memory."""
    held_bytes, _ = counted(never, *[GET * 1000] * 3)
    assert held_bytes <= NARROW.held_bytes + 2 * len(GET) * 1000 + 2000


def test_tiny_chunks_of_a_body_are_joined() -> None:
    """The chunks of a body are joined, as an object for each would take forty times the memory."""

    async def run() -> int:
        server = Server(echo, Limits(), asyncio.get_running_loop())
        client = Socketless(server)
        client.feed(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        chunks = b"2\r\nab\r\n" * 50_000
        tracemalloc.start()
        client.feed(chunks)
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        client.feed(b"0\r\n\r\n")
        assert client.sent.endswith(b"POST / " + b"ab" * 50_000)
        return taken

    assert asyncio.run(run()) < 300_000


def test_response_is_counted_until_its_last_byte_is_taken() -> None:
    """A response is counted as a whole until its last byte is taken, and then not at all."""

    async def run() -> None:
        server = Server(lambda it: it.reply(200, BODY), NARROW, asyncio.get_running_loop())
        client = Socketless(server, takes=10)
        client.feed(GET, GET)
        first = len(client.sent)
        assert first == server.held_bytes  # the second waits, unread
        client.take(first - 11)
        assert first == server.held_bytes
        client.take(1)
        await asyncio.sleep(0)
        client.feed(GET)
        assert 2 * first == len(client.sent)
        assert first == server.held_bytes
        client.take()
        assert 0 == server.held_bytes
        client.hang_up()
        await asyncio.sleep(0)

    asyncio.run(run())


def behind(server: Server, count: int) -> list[Socketless]:
    """Connect clients that send a request and read nothing, the longest-stalled first."""
    clients = [Socketless(server, takes=0) for _ in range(count)]
    for client in clients:
        client.feed(GET)
    return clients


def test_longest_stalled_clients_are_dropped_for_a_response() -> None:
    """Only as many clients as necessary are dropped, those that have read lately last."""

    async def run() -> None:
        server = Server(lambda it: it.reply(200, BODY), NARROW, asyncio.get_running_loop())
        clients = behind(server, 3)  # 180 000 bytes of 200 000
        assert not any(client.closed for client in clients)
        clients[0].take(1000)
        for client in clients:
            client.later(0.0)
        late = behind(server, 2)
        assert [False, True, True] == [client.closed for client in clients]
        assert not any(client.closed for client in late)
        assert 2 == server.closed["unread"]
        assert server.held_bytes <= NARROW.held_bytes
        for client in (*clients, *late):
            client.hang_up()
        await asyncio.sleep(0)
        assert 0 == server.held_bytes
        assert not server.behind

    asyncio.run(run())


def test_response_reuses_memory_of_its_request() -> None:
    """No client is dropped for a response as large as the request whose memory it frees."""

    async def run() -> None:
        asked: list[Exchange] = []
        server = Server(asked.append, NARROW, asyncio.get_running_loop())
        clients = [Socketless(server, takes=0) for _ in range(3)]
        for client in clients:
            client.feed(UPLOAD)
        assert 3 == len(asked)
        for exchange in asked:
            exchange.reply(200, exchange.body)
        assert not any(client.closed for client in clients)
        assert 3 * len(BODY) < server.held_bytes <= NARROW.held_bytes
        for client in clients:
            client.hang_up()
        await asyncio.sleep(0)

    asyncio.run(run())


def test_upload_displaces_only_stalled_clients() -> None:
    """An upload displaces a client that stalled for seconds, but not one that just fell behind."""

    async def run() -> None:
        def app(exchange: Exchange) -> None:
            exchange.reply(200, b"" if exchange.body else BODY)

        server = Server(app, NARROW, asyncio.get_running_loop())
        now = 100.0
        server.now = lambda: now
        stalled = behind(server, 3)
        early, late = Socketless(server), Socketless(server)
        early.feed(UPLOAD)
        assert early.sent.startswith(b"HTTP/1.1 503 ")
        assert not any(client.closed for client in stalled)
        now += 6.0
        late.feed(UPLOAD)
        assert late.sent.startswith(b"HTTP/1.1 200 ")
        assert [True, False, False] == [client.closed for client in stalled]
        for client in (*stalled, early, late):
            client.hang_up()
        await asyncio.sleep(0)
        assert 0 == server.held_bytes

    asyncio.run(run())


def test_waiting_responses_are_counted_once() -> None:
    """Waiting responses are not counted again once they are written to the socket."""

    async def run() -> None:
        asked: list[Exchange] = []
        server = Server(asked.append, NARROW, asyncio.get_running_loop())
        client = Socketless(server, takes=0)
        client.feed(GET * 4)
        for exchange in reversed(asked):
            exchange.reply(200, bytes(40_000))
        assert not client.closed
        assert len(client.sent) == server.held_bytes
        client.take()
        assert 0 == server.held_bytes
        client.hang_up()
        await asyncio.sleep(0)

    asyncio.run(run())


def test_stalled_client_gets_no_large_responses_beyond_memory_limit() -> None:
    """A client over a real socket gets no more large responses beyond the memory limit."""

    async def run() -> None:
        asked: list[Exchange] = []
        async with serving(asked.append, NARROW) as server, deaf_client(server, GET * 20):
            await wait_until_async(lambda: len(asked) == 20)
            for exchange in tuple(asked):
                exchange.reply(200, bytes(2_000_000))
                assert server.held_bytes <= NARROW.held_bytes
                await asyncio.sleep(0)
            await wait_until_async(lambda: not server.connections)
            assert asked[-1].gone

    asyncio.run(run())
