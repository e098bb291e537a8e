"""Calls to a machine that is lost, simulated by cutting off this process's own network namespace.

The outcome of each call is printed as JSON, by the way the call was made.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import subprocess
import sys
import termios
from typing import TYPE_CHECKING, Any

import uvloop

from carpool.http import call_frames, call_server
from carpool.http.call_client import Calls
from carpool.http.client import Pool
from carpool.http.client_connection import ConnectionFailed
from carpool.http.server import serve
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from carpool.errors import FunctionFault
    from carpool.http.server import Exchange

ADDRESS = "10.255.255.1"  # no loopback address, though all of it is in this namespace


def ip(*words: str) -> None:
    """Run ``ip`` to change the network."""
    subprocess.run(("ip", *words), check=True)


def unacknowledged(transport: asyncio.BaseTransport) -> int:
    """Return the number of bytes sent that the peer's kernel has not acknowledged."""
    found = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, b"\0" * 4)
    return int.from_bytes(found, sys.byteorder)


class Caller:
    """Receiver of the result of a bundled call."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def answered(self, status: int, head: bytes, body: memoryview) -> None:  # noqa: ARG002
        """Store the response."""
        self.outcome.set_result(bytes(body))

    def failed(self, error: FunctionFault) -> None:
        """Store the error."""
        self.outcome.set_exception(error)


async def outcomes() -> dict[str, Any]:
    """Return the outcomes of calls that reached the server, and of one that never does."""
    held: list[Exchange] = []

    def app(exchange: Exchange) -> None:
        if exchange.target == call_frames.PATH:
            call_server.accept(exchange)
        elif exchange.target == "/held":
            held.append(exchange)
        else:
            exchange.reply(200, b"here")

    def bundled(target: bytes) -> asyncio.Future[bytes]:
        caller = Caller()
        calls.send(b"POST %b\n" % target, b"", b"", caller)
        return caller.outcome

    server = await serve(app, listen=f"{ADDRESS}:0")
    calls, pool, kept = Calls(server.address, 1000, None), *(Pool(server.address) for _ in "12")
    assert await bundled(b"/") == (await kept.request("POST", "/")).body
    waiting: dict[str, asyncio.Future[Any]] = {
        "held, of a bundle": bundled(b"/held"),
        "held, alone": asyncio.ensure_future(pool.request("POST", "/held")),
    }
    await wait_until_async(lambda: len(held) == len(waiting))
    assert calls._connection
    transports = [calls._connection.transport, *(each.transport for each in pool._busy)]
    await wait_until_async(lambda: not any(map(unacknowledged, transports)))
    ip("link", "set", "lo", "down")
    waiting["never there"] = asyncio.ensure_future(kept.request("POST", "/"))
    return {name: await fate(call) for name, call in waiting.items()}


async def fate(call: asyncio.Future[Any]) -> dict[str, bool] | str:
    """Return how a call fails, or its result if it does not."""
    try:
        async with asyncio.timeout(HANG_S):
            return repr(await call)
    except ConnectionFailed as error:
        return {"sent": error.sent, "stale": error.stale}
    except TimeoutError:
        return "still waits"


if __name__ == "__main__":
    ip("address", "add", f"{ADDRESS}/32", "dev", "lo")
    print(json.dumps(uvloop.run(outcomes())))  # noqa: T201 - read by the test
