"""Substitute for a Service: connections go to the current backends in turn."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

__all__ = ["Balancer"]

_PIECE = 65536


class Balancer:
    """TCP balancer.

    Args:
        host: host to listen on, at a port chosen by the system.

    Attributes:
        backends: addresses of the current backends. The list may be replaced at any time;
            open connections stay where they are, as they do behind a Service.
        address: address of the balancer.
    """

    def __init__(self, host: str) -> None:
        self.backends: Sequence[str] = ()
        self.address = ""
        self._host = host
        self._turns = count()
        self._loop = asyncio.new_event_loop()
        self._listens = threading.Event()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve()])

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listens.wait(HANG_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(HANG_S)
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._pass_on, self._host, 0)
        host, port = server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"
        self._listens.set()
        await self._over.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for each in others:
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy both ways until either side has closed."""
        try:
            there = await self._connected()
            copies = [_copied(reader, there[1]), _copied(there[0], writer)]
            tasks = [asyncio.ensure_future(each) for each in copies]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                there[1].close()
        except ConnectionError:  # there is no backend: the caller's connection ends, as it came
            pass
        finally:
            writer.close()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection to the next backend that accepts one."""
        backends, turn = self.backends, next(self._turns)
        for number in range(len(backends)):
            host, _, port = backends[(turn + number) % len(backends)].rpartition(":")
            with suppress(OSError):
                return await asyncio.open_connection(host, int(port))
        message = "there is no backend"
        raise ConnectionError(message)


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
