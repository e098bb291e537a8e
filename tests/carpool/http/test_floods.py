"""More clients than connections: idle ones are closed, and active ones are not affected."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import uvloop

from carpool.http.server import Limits, Server
from tests.carpool.http.edge import CLOSE, Socketless, connect, echo, serving, spoken
from tests.waiting import HANG_S, wait_until, wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from carpool.http.server import Exchange

GET = b"GET / HTTP/1.1\r\nhost: x\r\n"

CROWDED = """
import asyncio, os, resource, sys
import uvloop
from carpool.http.server import serve

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

async def main():
    server = await serve(lambda exchange: exchange.reply(200), listen="127.0.0.1:0")
    print(server.address, flush=True)
    while command := (await asyncio.to_thread(sys.stdin.readline)).strip():
        if command == "fill":
            files = []
            try:
                while True:
                    files.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                pass
        else:
            for file in files:
                os.close(file)
        print("done", flush=True)

(uvloop if sys.argv[1] == "uvloop" else asyncio).run(main())
"""


def test_longest_idle_connection_is_closed_for_newcomer() -> None:
    """A newcomer is served, the longest-idle connection is closed, and the others stay."""

    async def run() -> None:
        async with serving(limits=Limits(connections=3)) as server:
            inside = []
            for count in (1, 2, 3):
                inside.append(await connect(server))
                await wait_until_async(lambda: len(server.connections) == count)  # noqa: B023
            (_, busy), (idle, _), _ = inside
            busy.write(GET + b"\r\n")  # the first to come has asked since
            assert (await inside[0][0].readuntil(b"GET / ")).startswith(b"HTTP/1.1 200 ")
            assert (await spoken(server, GET + CLOSE)).startswith(b"HTTP/1.1 200 ")
            assert b"" == await idle.read()
            assert {"idle": 1, "unread": 0, "crowd": 0} == server.closed
            for reader, writer in (inside[0], inside[2]):
                writer.write(GET + b"\r\n")
                assert (await reader.readuntil(b"GET / ")).startswith(b"HTTP/1.1 200 ")
            for _, writer in inside:
                writer.close()

    asyncio.run(run())


LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


@contextlib.asynccontextmanager
async def silent_client(server: Server) -> AsyncIterator[socket.socket]:
    """Connect a client whose data is not read until the event loop runs again."""
    host, _, port = server.address.rpartition(":")
    before = len(server.connections)
    with socket.create_connection((host, int(port))) as client:
        await wait_until_async(lambda: len(server.connections) > before)
        client.setblocking(False)  # noqa: FBT003 - the library's
        yield client


async def is_served(client: socket.socket) -> bool:
    """Return whether a response arrives, rather than the end of the connection."""
    try:
        return bool(await asyncio.get_running_loop().sock_recv(client, 1000))
    except ConnectionResetError:
        return False


@LOOPS
def test_connection_with_unread_request_is_not_closed(
    run: Callable[[Awaitable[None]], None],
) -> None:
    """A client with an unread request stays; one that has been idle for less time is closed."""

    async def asking() -> None:
        async with (
            serving(limits=Limits(connections=2)) as server,
            silent_client(server) as asks,
            silent_client(server) as idle,
        ):
            asks.send(GET + b"\r\n")
            assert server._make_room()
            assert not await is_served(idle)
            assert await is_served(asks)

    run(asking())


@LOOPS
def test_resumed_process_reads_requests_before_closing_idle_ones(
    run: Callable[[Awaitable[None]], None],
) -> None:
    """A process that resumes serves an unread request before it closes idle connections."""

    async def stopped() -> None:
        async with (
            serving(limits=Limits(idle_s=75.0)) as server,
            silent_client(server) as asks,
            silent_client(server) as idle,
        ):
            asks.send(GET + b"\r\n")
            now = server.now
            server.now = lambda: now() + 100
            assert server._sweep
            server._sweep.cancel()
            server._tick()
            assert await is_served(asks)
            assert not await is_served(idle)

    run(stopped())


def test_flood_is_logged_at_most_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """A flood is logged at most once a minute, with the number of closed connections since."""

    async def run() -> None:
        server = Server(echo, Limits(connections=1), asyncio.get_running_loop())
        server.now = clock = Clock()
        flood = [Socketless(server) for _ in range(5)]
        clock.now += 61
        flood.append(Socketless(server))
        assert 5 == server.closed["idle"]
        flood[-1].hang_up()
        await asyncio.sleep(0)

    asyncio.run(run())
    assert [(1, 1), (4, 1)] == [record.args for record in caplog.records]
    assert all("idle connections were closed" in record.message for record in caplog.records)


def test_newcomer_gets_503_while_all_connections_are_busy() -> None:
    """While all are busy, a newcomer gets 503 and Retry-After, until one of them is answered."""

    async def run() -> None:
        asked: list[Exchange] = []
        async with serving(asked.append, limits=Limits(connections=2)) as server:
            inside = [await connect(server) for _ in range(2)]
            for _, writer in inside:
                writer.write(GET + b"\r\n")
            await wait_until_async(lambda: len(asked) == 2)
            refused = await spoken(server)
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1\r\n" in refused
            assert {"idle": 0, "unread": 0, "crowd": 1} == server.closed
            assert (await spoken(server, GET + CLOSE)).startswith(b"HTTP/1.1 503 ")
            asked[0].reply(200, b"first")
            newcomer = await connect(server)
            newcomer[1].write(GET + CLOSE)
            await wait_until_async(lambda: len(asked) == 3)
            for exchange in asked[1:]:
                exchange.reply(200, b"later")
            assert (await newcomer[0].read()).endswith(b"later")
            assert (await inside[1][0].readuntil(b"later")).startswith(b"HTTP/1.1 200 ")
            for _, writer in (*inside, newcomer):
                writer.close()

    asyncio.run(run())


class Clock:
    """Clock set by the test."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


DRIP = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 900000\r\n\r\n"
WAITING = {
    "a head that drips in": ([GET], 0, True),
    "a body that drips in": ([DRIP, bytes(2000)], 0, True),
    "an upload that moves": ([DRIP, bytes(20_000)], 0, False),
    "an answer that is not read": ([GET + b"\r\n"], 50, True),
}


@pytest.mark.parametrize(("pieces", "takes", "room"), WAITING.values(), ids=WAITING)
def test_stalled_connection_is_closed_but_slow_one_is_kept(
    pieces: list[bytes],
    takes: int,
    room: bool,  # noqa: FBT001
) -> None:
    """A stalled connection makes room after some seconds; one that progresses slowly is kept."""

    async def run() -> None:
        server = Server(echo, Limits(connections=1), asyncio.get_running_loop())
        server.now = clock = Clock()
        inside = Socketless(server, takes=takes or 10**9)
        inside.feed(*pieces)
        for seconds, makes_room in ((4.0, False), (4.0, room)):
            clock.now += seconds
            inside.later(0.0)
            newcomer = Socketless(server)
            newcomer.feed(GET + b"\r\n")
            assert makes_room == newcomer.sent.startswith(b"HTTP/1.1 200 ")
            assert makes_room == inside.closed
            newcomer.hang_up()
            await asyncio.sleep(0)
        inside.hang_up()
        await asyncio.sleep(0)
        assert 0 == server.held_bytes

    asyncio.run(run())


def test_idle_connection_is_found_among_many_busy_ones() -> None:
    """Each newcomer checks only a few connections, but an idle one is eventually found."""

    async def run() -> None:
        asked: list[Exchange] = []
        server = Server(asked.append, Limits(connections=201), asyncio.get_running_loop())
        working = [Socketless(server) for _ in range(200)]
        for client in working:
            client.feed(GET + b"\r\n")
        idle = Socketless(server)
        newcomers = [Socketless(server) for _ in range(4)]
        assert idle.closed
        assert [False] * 3 + [True] == [not newcomer.sent for newcomer in newcomers]
        assert not any(client.closed for client in working)
        for client in (*working, *newcomers):
            client.hang_up()
        await asyncio.sleep(0)

    asyncio.run(run())


def test_refused_newcomers_are_not_kept() -> None:
    """While all connections are busy, few of many newcomers get a reason and none is kept."""

    async def run() -> None:
        asked: list[Exchange] = []
        server = Server(asked.append, Limits(connections=10), asyncio.get_running_loop())
        inside = [Socketless(server) for _ in range(10)]
        for client in inside:
            client.feed(GET + b"\r\n")
        flood = [Socketless(server) for _ in range(500)]
        for client in flood:
            client.feed(GET + b"\r\n")
        assert 10 == len(server.connections) == len(asked)
        told = [client for client in flood if client.sent]
        assert 1 <= len(told) <= 64
        assert all(client.sent.count(b"HTTP/1.1 503 ") == 1 for client in told)
        for client in flood:
            client.later(3.0)
        assert all(client.closed for client in flood)
        for exchange in asked:
            echo(exchange)
        assert all(client.sent.startswith(b"HTTP/1.1 200 ") for client in inside)
        await asyncio.sleep(0)
        assert not server._turned_away
        for client in inside:
            client.hang_up()
        await asyncio.sleep(0)
        assert 0 == server.held_bytes

    asyncio.run(run())


@pytest.fixture(params=["uvloop", "asyncio"])
def crowded(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A server process that may open 64 files and takes commands on its standard input."""
    process = subprocess.Popen(
        [sys.executable, "-c", CROWDED, request.param],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with process:
        yield process
        process.kill()


def command(process: subprocess.Popen[str], word: str) -> None:
    """Send ``word`` to the process and wait until it is done."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"{word}\n")
    process.stdin.flush()
    assert "done\n" == process.stdout.readline()


def served(where: tuple[str, int]) -> bool:
    """Return whether a new client gets a response."""
    try:
        with socket.create_connection(where, timeout=HANG_S) as client:
            client.sendall(GET + CLOSE)
            return client.recv(100).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False


def test_accepting_resumes_after_running_out_of_file_descriptors(
    crowded: subprocess.Popen[str],
) -> None:
    """Clients are served again after a flood or the process itself has used up all files."""
    assert crowded.stdout
    host, _, port = crowded.stdout.readline().strip().rpartition(":")
    where = host, int(port)
    flood = [socket.create_connection(where, timeout=HANG_S) for _ in range(100)]
    for client in flood:
        client.close()
    wait_until(lambda: served(where), what="service after a flood")
    command(crowded, "fill")
    flood = [socket.create_connection(where, timeout=HANG_S) for _ in range(20)]
    command(crowded, "free")
    for client in flood:
        client.close()
    wait_until(lambda: served(where), what="service after other files were closed")
