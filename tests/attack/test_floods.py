"""Floods over real sockets: memory and descriptors stay bounded, and others are served meanwhile.

What a connection may cost, and which one is closed for another, is tested piece by piece beside the
edge (tests/carpool/http); here it holds for whole processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from carpool.http.client import Pool
from tests.attack.edges import Edges, connect
from tests.sidecar.runtime.conftest import on_loop
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Iterator

    from tests.attack.effort import Effort

MIB = 1024 * 1024
HELD_MIB = 200
KEPT_MIB = 64  # of free memory, as to give it back takes time
PLACES = 100
ANSWER_BYTES = 4_000_000
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
RESET = b"\1\0\0\0\0\0\0\0"  # SO_LINGER: closing cuts the connection

SERVER = f"""
import asyncio, json, sys, uvloop
from carpool.http.server import Limits, serve

async def main():
    def app(exchange):
        if exchange.target == "/large":
            exchange.reply(200, bytes({ANSWER_BYTES}))
        else:
            exchange.reply(200, json.dumps([server.held_bytes, len(server.connections)]).encode())

    limits = Limits(held_bytes={HELD_MIB * MIB}, body_bytes={MIB}, connections={PLACES})
    server = await serve(app, listen="127.0.0.1:0", limits=limits)
    print(server.address, flush=True)
    await asyncio.to_thread(sys.stdin.read)

uvloop.run(main())
"""


class State(NamedTuple):
    """A server's report about itself to a new client."""

    held_bytes: int
    connections: int


class Flooded:
    """A server in its own process."""

    def __init__(self, process: Process, address: str) -> None:
        self._process = process
        host, _, port = address.rpartition(":")
        self.where = host, int(port)
        self._address = address

    async def state(self) -> State:
        """Ask as a new client; fail if it is not served."""
        pool = Pool(self._address)
        try:
            answer = await pool.request("GET", "/", timeout_s=HANG_S)
        finally:
            pool.close()
        assert 200 == answer.status, answer
        return State(*json.loads(answer.body))

    def resident_mib(self) -> float:
        """Return its resident memory."""
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self._process.pid}/status").read_text())
        assert found
        return int(found[1]) / 1024

    async def until_nothing_is_held(self) -> State:
        """Wait until it has noticed that all other clients have disconnected."""
        async with asyncio.timeout(HANG_S):
            while (state := await self.state()).held_bytes >= 4096:
                pass
        return state

    def files(self) -> int:
        """Return the number of its open files."""
        return sum(1 for _ in Path(f"/proc/{self._process.pid}/fd").iterdir())


@contextlib.asynccontextmanager
async def flooded() -> AsyncIterator[Flooded]:
    """Yield a running server."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVER),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout
    try:
        yield Flooded(process, (await process.stdout.readline()).decode().strip())
    finally:
        process.kill()
        await process.wait()


async def deaf(server: Flooded, raw: bytes) -> socket.socket:
    """Return a client that has sent ``raw`` and reads nothing."""
    loop = asyncio.get_running_loop()
    client = socket.socket()
    client.setblocking(False)  # noqa: FBT003 - as the socket has it
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await loop.sock_connect(client, server.where)
    with contextlib.suppress(ConnectionError):
        await loop.sock_sendall(client, raw)
    return client


@pytest.mark.slow
@on_loop
async def test_responses_to_clients_that_do_not_read_are_bounded(effort: Effort) -> None:
    """Their answers exceed the limit, which holds; afterwards the memory is free again."""
    async with flooded() as server:
        await server.state()
        before_mib = server.resident_mib()
        clients, held_bytes = [], []
        for _ in range(PLACES - 20):
            clients.append(await deaf(server, GET.replace(b"/ ", b"/large ", 1)))
            held_bytes.append((await server.state()).held_bytes)
        assert HELD_MIB * MIB / 2 < max(held_bytes) <= HELD_MIB * MIB + 4096
        assert server.resident_mib() < before_mib + 2 * HELD_MIB
        for client in clients:
            client.close()
        await wait_until_async(
            lambda: server.resident_mib() < before_mib + KEPT_MIB + 16, 60, "memory is back"
        )
        await server.until_nothing_is_held()
    effort.count("floods, clients that do not read", len(clients))


FLOODS = {
    "idle": b"",
    "heads that drip in": GET[:-2],
    "uploads that stop": b"POST" + GET[3:-2] + b"content-length: 900000\r\n\r\n" + bytes(20_000),
}


@pytest.mark.parametrize("kind", FLOODS)
@on_loop
async def test_excess_idle_connections_are_closed(effort: Effort, kind: str) -> None:
    """Idle connections are closed at once; descriptors and memory stay bounded whatever is sent."""
    async with flooded() as server:
        await server.state()
        files = server.files()
        clients = []
        for number in range(4 * PLACES):
            clients.append(await deaf(server, FLOODS[kind]))
            if kind == "idle" and number % 40 == 0:
                assert (await server.state()).connections <= PLACES
        await wait_until_async(
            lambda: server.files() <= files + PLACES + 64, 60, "descriptors are bounded"
        )
        for client in clients:
            client.close()
        await wait_until_async(lambda: server.files() <= files, what="descriptors are back")
        await server.until_nothing_is_held()
    effort.count(f"floods, {kind}", len(clients))


@on_loop
async def test_cut_connections_leave_no_descriptor_or_memory(effort: Effort) -> None:
    """Connections cut before, within and after a request leave no descriptor and no memory."""
    async with flooded() as server:
        await server.state()
        files = server.files()
        total = 600
        for number in range(total):
            client = await deaf(server, (GET * 3)[: number % (2 * len(GET))])
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.close()
        await wait_until_async(lambda: server.files() <= files, what="descriptors are back")
        state = await server.until_nothing_is_held()
        assert state.connections <= 2  # this question's, and the first one's
    effort.count("floods, cut connections", total)


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edges]:
    """Yield a provider and its sidecar."""
    with Edges(tmp_path_factory.mktemp("edges")) as running:
        yield running


@pytest.mark.parametrize("name", ["sidecar", "provider"])
def test_pipelined_requests_are_read_as_fast_as_responses(
    edges: Edges, effort: Effort, name: str
) -> None:
    """Pipelined requests with bodies are read only as fast as their answers are."""

    async def flood() -> float:
        edge = edges[name]
        reader, writer = await connect(edge)
        writer.transport.pause_reading()  # type: ignore[attr-defined] # there is no other way
        head = b"POST %b/ HTTP/1.1\r\nhost: x\r\ncontent-length: 4000\r\n\r\n" % edge.prefix
        request = head + bytes(4000)
        writer.write(request * 10_000)
        other = Pool(edge.address)
        prefix = edge.prefix.decode()
        for _ in range(20):  # others are served while it goes on
            answer = await other.request("POST", f"{prefix}/", (), b"me", 30.0)
            assert (200, b"POST /\nme") == (answer.status, answer.body)
        metrics = (await other.request("GET", f"{prefix}/metrics", timeout_s=HANG_S)).body.decode()
        other.close()
        writer.transport.abort()
        del reader
        found = re.search(r"^batch_held_bytes (\S+)", metrics, re.MULTILINE)
        assert found
        return float(found[1])

    assert edges.run(flood()) < 16 * MIB  # of forty
    effort.count(f"floods, pipelined requests, {name}", 10_000)
