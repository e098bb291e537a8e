"""The open-loop load generator: sends each request when it is due, however slow the responses are.

Theory of operation
-------------------
One alarm wakes the generator for the next due request. A request takes an idle keep-alive
connection. If there is none, it opens one while fewer than the limit are open, and otherwise
queues; its latency counts from its due time in every case. A connection carries one request at a
time, as with most clients. Nothing is sent twice. A sweep every tenth of a second enforces the
time limit, so a request costs no timer and no task; 20 000 requests per second fit one core.

The generator knows neither flags nor reports: it fills a `LoadResults`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httptools

from faas_stack.load.alarm import Alarm

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faas_stack.load.results import LoadResults

__all__ = ["LoadGenerator", "Target"]

_SWEEP_S = 0.1
_EXAMPLE_BYTES = 1000
_EXAMPLE_CHARS = 160
_BATCH_HEADER = b"x-carpool-batch"


@dataclass(frozen=True, slots=True)
class Target:
    """Destination and contents of the requests.

    Attributes:
        requests: Complete requests as bytes, sent in turn.
        connections: Maximum number of open connections.
        timeout_s: Time after its due time at which an unanswered request has failed.
        patience_s: Time after its due time at which a request that still has no connection has
            failed, and is not sent.
    """

    host: str
    port: int
    requests: Sequence[bytes]
    connections: int
    timeout_s: float
    patience_s: float = math.inf


class _Connection(asyncio.Protocol):
    """A socket that carries one request at a time."""

    __slots__ = ("_batch", "_generator", "_parser", "due", "error_body", "transport")

    transport: asyncio.Transport

    def __init__(self, generator: LoadGenerator) -> None:
        self._generator = generator
        self._parser = httptools.HttpResponseParser(self)
        self._batch = 0
        self.due: float | None = None
        self.error_body = b""

    def send(self, due: float, request: bytes) -> None:
        self.due = due
        self._batch = 0
        self.error_body = b""
        self.transport.write(request)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._generator.lost(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        self._generator.lost(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) == len(_BATCH_HEADER) and name.lower() == _BATCH_HEADER and value.isdigit():
            self._batch = int(value)

    def on_body(self, piece: bytes) -> None:
        if self._parser.get_status_code() >= 300 and len(self.error_body) < _EXAMPLE_BYTES:  # noqa: PLR2004
            self.error_body += piece[:_EXAMPLE_BYTES]

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and self.due is not None:  # noqa: PLR2004 - below: not the answer yet
            keep = self._parser.should_keep_alive()
            self._generator.answered(self, status, self._batch, reusable=keep)


class LoadGenerator:
    """One load run.

    Args:
        target: Destination and contents of the requests.
        arrivals: Due times in seconds from the start, in order.
        results: Outcomes of every request due at or after ``warmup_s``.
        warmup_s: Requests due earlier are sent but not counted.
        span_s: Total time of the arrivals, including warm-up; throughput is over at least this
            time.
    """

    def __init__(
        self,
        target: Target,
        arrivals: Iterator[float],
        results: LoadResults,
        *,
        warmup_s: float = 0.0,
        span_s: float = 0.0,
    ) -> None:
        self._target = target
        self._arrivals = arrivals
        self._results = results
        self._warmup_s = warmup_s
        self._span_s = span_s
        self._next_due: float | None = None
        self._turn = 0
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._line: deque[float] = deque()
        self._start = 0.0
        self._counted_from = 0.0
        self._last_answer = 0.0
        self._done: asyncio.Event = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """Number of requests that are due and not answered."""
        return len(self._busy) + len(self._line)

    @property
    def elapsed_s(self) -> float:
        """Time since the start."""
        return time.perf_counter() - self._start

    async def run(self) -> None:
        """Send all requests and wait for the last response or its time limit.

        Raises:
            OSError: If the target cannot be reached.
        """
        loop = asyncio.get_running_loop()
        await self._connect()
        alarm = self._alarm = Alarm(loop, self._send_due)
        sweeper = asyncio.create_task(self._sweep())
        self._start = self._last_answer = time.perf_counter()
        self._counted_from = self._start + self._warmup_s
        self._advance()
        self._send_due()
        try:
            await self._done.wait()
            self._last_answer = max(self._last_answer, self._start + self._span_s)
        finally:
            alarm.close()
            sweeper.cancel()
            self._results.elapsed_s += max(0.0, self._last_answer - self._counted_from)
            self._close()

    def _close(self) -> None:
        for task in self._connecting:
            task.cancel()
        for connection in (*self._idle, *self._busy):
            connection.due = None
            connection.transport.abort()

    # -- sending ----------------------------------------------------------------------------

    def _advance(self) -> None:
        offset_s = next(self._arrivals, None)
        self._next_due = None if offset_s is None else self._start + offset_s

    def _send_due(self) -> None:
        now = time.perf_counter()
        while self._next_due is not None and self._next_due <= now:
            due = self._next_due
            self._advance()
            if due >= self._counted_from:
                self._results.lags_s.append(now - due)
            if self._idle:
                self._send(self._idle.pop(), due)
            else:
                self._wait_in_line(due)
        if self._next_due is not None:
            self._alarm.set(self._next_due - time.perf_counter())
        else:
            self._finish_if_done()

    def _wait_in_line(self, due: float) -> None:
        self._line.append(due)
        if not self._grow() and due >= self._counted_from:
            self._results.starved += 1

    def _grow(self) -> bool:
        """Open a connection for the next queued request; return False if the limit is reached."""
        if len(self._busy) + len(self._connecting) >= self._target.connections:
            return False
        if len(self._connecting) < len(self._line):
            task = asyncio.create_task(self._connect_or_fail())
            self._connecting.add(task)
            task.add_done_callback(self._connected)
        return True

    def _connected(self, task: asyncio.Task[None]) -> None:
        """Handle a finished connection attempt; queued requests may need another connection."""
        self._connecting.discard(task)
        if not task.cancelled():
            self._grow()

    def _send(self, connection: _Connection, due: float) -> None:
        self._busy.add(connection)
        connection.send(due, self._target.requests[self._turn])
        self._turn = (self._turn + 1) % len(self._target.requests)

    async def _connect(self) -> None:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(self), self._target.host, self._target.port
        )
        self._take(connection)

    async def _connect_or_fail(self) -> None:
        try:
            await self._connect()
        except OSError:
            if self._line:
                self._failed(self._line.popleft(), "connection")

    def _take(self, connection: _Connection) -> None:
        earliest = time.perf_counter() - self._target.patience_s
        while self._line and self._line[0] < earliest:
            self._failed(self._line.popleft(), "unsent")
        if self._line:
            self._send(connection, self._line.popleft())
        else:
            self._idle.append(connection)

    # -- outcomes ---------------------------------------------------------------------------

    def answered(self, connection: _Connection, status: int, batch: int, *, reusable: bool) -> None:
        """Count a complete response and reuse or close its connection."""
        now = time.perf_counter()
        due = connection.due
        connection.due = None
        self._busy.discard(connection)
        if due is not None and due >= self._counted_from:
            self._results.answered(status, now - due, batch)
            if connection.error_body and (name := str(status)) not in self._results.examples:
                self._results.examples[name] = _one_line(connection.error_body)
            self._last_answer = now
        if reusable:
            self._take(connection)
        else:
            connection.transport.close()
            self._grow()
        self._finish_if_done()

    def lost(self, connection: _Connection) -> None:
        """Handle a connection that broke or did not carry valid HTTP."""
        due, connection.due = connection.due, None
        if connection in self._idle:
            self._idle.remove(connection)
        self._busy.discard(connection)
        connection.transport.abort()
        if due is not None:
            self._failed(due, "connection")
            self._grow()

    def _failed(self, due: float, why: str) -> None:
        if due >= self._counted_from:
            self._results.failed(why)
            self._last_answer = time.perf_counter()
        self._finish_if_done()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            oldest = time.perf_counter() - self._target.timeout_s
            for connection in [c for c in self._busy if c.due is not None and c.due < oldest]:
                due, connection.due = connection.due, None
                self._busy.discard(connection)
                connection.transport.abort()
                self._failed(due or 0.0, "timeout")
                self._grow()
            while self._line and self._line[0] < oldest:
                self._failed(self._line.popleft(), "timeout")

    def _finish_if_done(self) -> None:
        if self._next_due is None and not self._busy and not self._line:
            self._done.set()


def _one_line(body: bytes) -> str:
    """Return the beginning of a response as text that a terminal shows as it is."""
    text = " ".join(body.decode("utf-8", "replace").split())
    shown = "".join(char if char.isprintable() else "?" for char in text)
    return shown if len(shown) <= _EXAMPLE_CHARS else f"{shown[: _EXAMPLE_CHARS - 3]}..."
