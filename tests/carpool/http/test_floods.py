"""More clients than there is room for: they hear so at once, and those inside notice nothing."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from carpool.http.server import Limits, Server
from tests.carpool.http.edge import CLOSE, Socketless, connect, echo, serving, spoken
from tests.waiting import wait_until, wait_until_async

if TYPE_CHECKING:
    from collections.abc import Iterator

GET = b"GET / HTTP/1.1\r\n"

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


def test_too_many_connections_are_turned_away() -> None:
    """Beyond the limit a client gets 503 and Retry-After, until one of those inside leaves."""

    async def run() -> None:
        async with serving(limits=Limits(connections=2)) as server, asyncio.timeout(5):
            inside = [await connect(server) for _ in range(2)]
            await wait_until_async(lambda: len(server.connections) == 2)
            refused = await spoken(server)
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1\r\n" in refused
            assert (await spoken(server, GET + CLOSE)).startswith(b"HTTP/1.1 503 ")
            inside[0][1].close()
            await wait_until_async(lambda: len(server.connections) == 1)
            assert (await spoken(server, GET + CLOSE)).startswith(b"HTTP/1.1 200 ")
            inside[1][1].close()

    asyncio.run(run())


def test_a_flood_of_connections_leaves_nothing_behind() -> None:
    """Many come, send and stay; few are told why not, nobody is kept, those inside are served."""

    async def run() -> None:
        server = Server(echo, Limits(connections=10), asyncio.get_running_loop())
        inside = [Socketless(server) for _ in range(10)]
        flood = [Socketless(server) for _ in range(500)]
        for client in flood:
            client.feed(GET + b"\r\n")
        assert 10 == len(server.connections)
        told = [client for client in flood if client.sent]
        assert 1 <= len(told) <= 64
        assert all(client.sent.count(b"HTTP/1.1 503 ") == 1 for client in told)
        for client in flood:
            client.later(3.0)
        assert all(client.closed for client in flood)
        inside[0].feed(GET + b"\r\n")
        assert inside[0].sent.startswith(b"HTTP/1.1 200 ")
        await asyncio.sleep(0)
        assert not server._turned_away
        for client in inside:
            client.hang_up()
        await asyncio.sleep(0)
        assert 0 == server.held_bytes

    asyncio.run(run())


@pytest.fixture(params=["uvloop", "asyncio"])
def crowded(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A server in a process that may open 64 files, and takes commands on its standard input."""
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
    """Tell the process ``word`` and wait until it has done it."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"{word}\n")
    process.stdin.flush()
    assert "done\n" == process.stdout.readline()


def served(where: tuple[str, int]) -> bool:
    """Whether a new client gets an answer."""
    try:
        with socket.create_connection(where, timeout=5) as client:
            client.sendall(GET + CLOSE)
            return client.recv(100).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False


def test_running_out_of_files_does_not_end_the_accepting(crowded: subprocess.Popen[str]) -> None:
    """Neither a flood nor something else in the process: afterwards clients are served again."""
    assert crowded.stdout
    host, _, port = crowded.stdout.readline().strip().rpartition(":")
    where = host, int(port)
    flood = [socket.create_connection(where, timeout=5) for _ in range(100)]
    for client in flood:
        client.close()
    wait_until(lambda: served(where), what="service after a flood")
    command(crowded, "fill")
    flood = [socket.create_connection(where, timeout=5) for _ in range(20)]
    command(crowded, "free")
    for client in flood:
        client.close()
    wait_until(lambda: served(where), what="service after other files were closed")
