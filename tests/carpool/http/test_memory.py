"""What a set of hostile clients can make a server keep is bounded, and counted to the byte."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import TYPE_CHECKING

from carpool.http.server import Exchange, Limits, Server
from tests.carpool.http.edge import CLOSE, Socketless, connect, deaf_client, echo, serving, spoken
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import Callable

GET = b"GET / HTTP/1.1\r\n\r\n"
BODY = bytes(60_000)
UPLOAD = b"POST / HTTP/1.1\r\ncontent-length: 60000\r\n\r\n" + BODY
NARROW = Limits(held_bytes=200_000, body_bytes=100_000)


def numbered(count: int, body: bytes = b"") -> bytes:
    """Pipelined requests, each with its number as target."""
    head = b"POST /%d HTTP/1.1\r\ncontent-length: %d\r\n\r\n"
    return b"".join([head % (i, len(body)) + body for i in range(count)])


def in_order(answers: bytes, count: int) -> bool:
    """Whether the answers to `numbered` requests are all there, each in its place."""
    places = [answers.find(b"POST /%d " % i) for i in range(count)]
    return -1 not in places and places == sorted(places)


def test_hundreds_of_pipelined_requests_are_answered_in_order() -> None:
    """With bodies, in one write; more of them than the application may have at once."""

    async def run() -> bytes:
        async with serving(limits=Limits()) as server:
            return await spoken(server, numbered(700, b"x" * 500) + b"GET / HTTP/1.1\r\n" + CLOSE)

    assert in_order(asyncio.run(run()), 700)


def test_the_application_has_few_of_a_connections_requests_at_once() -> None:
    """The rest waits, unread where possible; every request comes in the end, in order."""

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


def test_requests_are_not_handed_over_in_the_midst_of_an_answer() -> None:
    """An application that answers a list of exchanges is not called while it does so."""
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


def test_who_does_not_read_answers_is_not_read() -> None:
    """A client that only asks, however much, makes the server keep a few buffers and no more."""

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
    """Let ``clients`` upload a body each, which the application keeps."""
    writers = []
    for _ in range(clients):
        _, writer = await connect(server)
        writers.append(writer)
        writer.write(UPLOAD)
        before = len(asked)
        await wait_until_async(lambda before=before: len(asked) > before)  # type: ignore[misc]
    return writers


def test_beyond_the_memory_limit_uploads_are_refused_and_small_requests_served() -> None:
    """503 with Retry-After; probes go on; when the memory is free again, so do uploads."""

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
            probe = await spoken(server, b"GET / HTTP/1.1\r\n" + CLOSE)
            assert probe.startswith(b"HTTP/1.1 200 ")
            for exchange in asked:
                exchange.reply(200)
            writers += await hold(server, asked, 1)
            for writer in writers:
                writer.close()

    asyncio.run(run())


def counted(app: Callable[[Exchange], None], *pieces: bytes) -> tuple[int, bytes]:
    """What is held for a client after ``pieces``, and what it has been answered."""

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
    """Do not answer."""
    del exchange


def test_everything_that_is_kept_is_counted() -> None:
    """Parts of heads and bodies, whole requests, answers that wait for their turn."""
    assert (9, b"") == counted(never, GET[:9])
    assert (len(UPLOAD) - 1, b"") == counted(never, UPLOAD[:40_000], UPLOAD[40_000:-1])
    assert counted(never, UPLOAD)[0] > len(UPLOAD)
    assert (0, b"") == counted(never, b"\r\n" * 1000)

    def second_first(exchange: Exchange) -> None:
        if exchange.target == "/1":
            exchange.reply(200, BODY)

    assert counted(second_first, numbered(2))[0] > len(BODY)


def test_bodies_that_do_not_end_are_refused_at_the_limit() -> None:
    """A body counts as it arrives, whatever length was announced; the others go on."""

    async def run() -> None:
        server = Server(never, NARROW, asyncio.get_running_loop())
        clients = [Socketless(server) for _ in range(3)]
        for client in clients:
            client.feed(b"POST / HTTP/1.1\r\ncontent-length: 90000\r\n\r\n")
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
    """However small it was chosen: what may be sent at all can be held."""

    async def run() -> bytes:
        async with serving(limits=Limits(held_bytes=1, body_bytes=60_000)) as server:
            return await spoken(server, UPLOAD + GET[:-2] + CLOSE)

    assert 2 == asyncio.run(run()).count(b"HTTP/1.1 200 ")


def test_an_idle_connection_keeps_nothing_of_its_last_request() -> None:
    """Thousands of idle clients with a large request behind them cost nothing."""

    async def run() -> int:
        server = Server(lambda it: it.reply(200), Limits(), asyncio.get_running_loop())
        client = Socketless(server)
        client.feed(GET)
        tracemalloc.start()
        client.feed(
            b"POST / HTTP/1.1\r\na: %b\r\ncontent-length: 9000000\r\n\r\n" % bytes(b"a" * 50_000)
        )
        for _ in range(90):
            client.feed(bytes(100_000))
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert 2 == client.sent.count(b"HTTP/1.1 200 ")
        return taken

    assert asyncio.run(run()) < 20_000


def test_tiny_pipelined_requests_count_for_what_they_cost() -> None:
    """Eighteen bytes on the wire are a kilobyte in memory."""
    held_bytes, _ = counted(never, *[GET * 1000] * 3)
    assert held_bytes <= NARROW.held_bytes + 2 * len(GET) * 1000 + 2000


def test_a_body_in_tiny_chunks_takes_little_more_than_its_size() -> None:
    """Its pieces are put together: an object for each would take forty times as much."""

    async def run() -> int:
        server = Server(echo, Limits(), asyncio.get_running_loop())
        client = Socketless(server)
        client.feed(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n")
        chunks = b"2\r\nab\r\n" * 50_000
        tracemalloc.start()
        client.feed(chunks)
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        client.feed(b"0\r\n\r\n")
        assert client.sent.endswith(b"POST / " + b"ab" * 50_000)
        return taken

    assert asyncio.run(run()) < 300_000


def test_what_a_client_has_not_taken_counts_from_the_first_byte() -> None:
    """An answer is in memory as a whole until its last byte is gone; then it is gone, too."""

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
    """Clients that ask and take nothing; the first has stalled for longest."""
    clients = [Socketless(server, takes=0) for _ in range(count)]
    for client in clients:
        client.feed(GET)
    return clients


def test_the_longest_stalled_are_dropped_when_an_answer_needs_their_memory() -> None:
    """As many as needed and no more; clients that have read since the last check come later."""

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


def test_an_answer_takes_the_place_of_its_request() -> None:
    """No client is dropped for an answer as large as the request whose memory it frees."""

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


def test_an_upload_is_not_refused_for_those_who_do_not_read() -> None:
    """A client stalled for seconds is closed for it; one that has just fallen behind is not."""

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


def test_answers_that_wait_for_their_turn_are_counted_once() -> None:
    """Released into the socket they are not counted there and here."""

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


def test_a_client_that_does_not_read_a_large_answer_is_dropped_when_memory_is_needed() -> None:
    """Over sockets: beyond the limit it gets no more of them."""

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
