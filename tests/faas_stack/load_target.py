"""A scripted HTTP server for load tests, on its own thread and event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from carpool.http.server import serve
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.http.server import Application, Exchange

__all__ = ["delayed", "running"]


@contextmanager
def running(app: Application) -> Iterator[str]:
    """Run a server for ``app`` and return its base URL."""
    started = threading.Event()
    stop: asyncio.Event
    loop: asyncio.AbstractEventLoop
    address = ""

    async def main() -> None:
        nonlocal stop, loop, address
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        server = await serve(app, listen="127.0.0.1:0")
        address = server.address
        started.set()
        await stop.wait()
        await server.stop()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert started.wait(HANG_S)
    try:
        yield f"http://{address}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(HANG_S)


def delayed(delay_s: float, status: int = 200) -> Application:
    """Return an application that responds with ``status`` after ``delay_s``."""

    def app(exchange: Exchange) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(delay_s, exchange.reply, status, b"done")

    return app
