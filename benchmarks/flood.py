"""Generate open-loop load beyond what `carpool load` can send: one thread, bare sockets, no parser.

Theory of operation
-------------------
Every request has a due time, drawn beforehand. At that time the request is sent on an idle
keep-alive connection, the most recently used first. If no connection is idle, it is not sent, as
with a client whose pool is exhausted, and counts as not answered. So no queue forms here, and what
arrives at the server is fresh. Latency counts from the due time. The loop never sleeps: it needs a
core of its own, and reports how late its requests were sent.

A closed loop, for the highest throughput, is the same without due times: a new request follows each
response.
"""

from __future__ import annotations

import re
import select
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["UNANSWERED", "UNSENT", "Flood", "Sent"]

UNSENT, UNANSWERED = -1.0, -2.0
_STATUS = slice(9, 12)
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_READ_BYTES = 65536
_HEADS_MAX = 1000
_LAST_ANSWERS_S = 3.0
_AT_ONCE = 512  # connections opened in a row: a listener's backlog is finite
_BREATH_S = 0.1
_OPENING_S = 10.0


@dataclass(slots=True)
class Sent:
    """The fate of requests, in the order of their due times.

    Attributes:
        due_s: when each was due, from the start.
        lag_s: how late each was sent.
        latency_s: from the due time to the response; `UNSENT`, or `UNANSWERED`.
        status: of the response; 0 without one.
    """

    due_s: NDArray[np.float64]
    lag_s: NDArray[np.float64] = field(init=False)
    latency_s: NDArray[np.float64] = field(init=False)
    status: NDArray[np.int16] = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.due_s)
        self.lag_s = np.zeros(count)
        self.latency_s = np.full(count, UNSENT)
        self.status = np.zeros(count, np.int16)

    def between(self, start_s: float, end_s: float) -> Sent:
        """Return the requests that were due in an interval."""
        chosen = (start_s <= self.due_s) & (self.due_s < end_s)
        part = Sent(self.due_s[chosen])
        part.lag_s, part.latency_s = self.lag_s[chosen], self.latency_s[chosen]
        part.status = self.status[chosen]
        return part


class Flood:
    """Connections to one server, as a context manager.

    Args:
        port: of the server, on this machine.
        requests: complete requests, sent in turn.
        connections: number of connections, opened on entry.
    """

    def __init__(self, port: int, requests: Sequence[bytes], connections: int) -> None:
        self._port = port
        self._requests = requests
        self._count = connections
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._idle: list[socket.socket] = []
        self._lengths: dict[bytes, int] = {}
        self._parts: dict[int, bytes] = {}

    def __enter__(self) -> Self:
        for number in range(self._count):
            connection = socket.create_connection(("127.0.0.1", self._port), _OPENING_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setblocking(False)  # noqa: FBT003 - the standard library's
            self._sockets[connection.fileno()] = connection
            self._poll.register(connection, select.EPOLLIN)
            if number % _AT_ONCE == _AT_ONCE - 1:
                self._poll.poll(_BREATH_S)
        self._idle = list(self._sockets.values())
        return self

    def __exit__(self, *_: object) -> None:
        self._poll.close()
        for connection in self._sockets.values():
            connection.close()

    def closed_loop(self, connections: int, span_s: float) -> tuple[float, list[float]]:
        """Return the successful responses per second in a closed loop, and all latencies."""
        latencies: list[float] = []
        sent_at: dict[int, float] = {}
        turn, good, start = 0, 0, time.perf_counter()
        for _ in range(min(connections, len(self._idle))):
            connection = self._idle.pop()
            sent_at[connection.fileno()] = time.perf_counter()
            connection.send(self._requests[turn % len(self._requests)])
            turn += 1
        while sent_at:
            now = time.perf_counter()
            for number, status in self._answers():
                latencies.append(now - sent_at.pop(number))
                good += status == 200 and now < start + span_s  # noqa: PLR2004
                connection = self._sockets[number]
                if now < start + span_s:
                    sent_at[number] = now
                    connection.send(self._requests[turn % len(self._requests)])
                    turn += 1
                else:
                    self._idle.append(connection)
            if now > start + span_s + _LAST_ANSWERS_S:
                break
        return good / span_s, latencies

    def open_loop(self, due_s: NDArray[np.float64]) -> Sent:
        """Send a request at each due time, whatever happens to the others."""
        sent = Sent(due_s)
        dues, count = due_s.tolist(), len(due_s)
        lag_s, latency_s, statuses = sent.lag_s, sent.latency_s, sent.status
        idle, requests, clock = self._idle, self._requests, time.perf_counter
        carries: dict[int, int] = {}
        following, last, start = 0, dues[-1], clock()
        while following < count or carries:
            now = clock() - start
            while following < count and dues[following] <= now:
                if not idle:
                    following = int(np.searchsorted(due_s, now, side="right"))
                    break
                connection = idle.pop()
                connection.send(requests[following % len(requests)])
                carries[connection.fileno()] = following
                lag_s[following] = now - dues[following]
                latency_s[following] = UNANSWERED
                following += 1
                now = clock() - start
            for number, status in self._answers():
                idle.append(self._sockets[number])
                which = carries.pop(number, None)
                if which is not None:  # else it is the answer to a request of an earlier run
                    latency_s[which] = clock() - start - dues[which]
                    statuses[which] = status
            if now > last + _LAST_ANSWERS_S:
                break
        return sent

    def _answers(self) -> list[tuple[int, int]]:
        """Return the connections that have a complete response now, and its status."""
        answers = []
        for number, _ in self._poll.poll(0):
            data = self._sockets[number].recv(_READ_BYTES)
            if not data:
                msg = "the server closed a connection"
                raise ConnectionError(msg)
            if self._parts:
                data = self._parts.pop(number, b"") + data
            end = data.find(b"\r\n\r\n")
            if end < 0 or len(data) < end + 4 + self._length(data[:end]):
                self._parts[number] = data
                continue
            answers.append((number, int(data[_STATUS])))
        return answers

    def _length(self, head: bytes) -> int:
        """Return the body length given by a head, cached because heads repeat."""
        length = self._lengths.get(head)
        if length is None:
            if len(self._lengths) >= _HEADS_MAX:
                self._lengths.clear()
            told = _LENGTH.search(head)
            length = self._lengths[head] = int(told[1]) if told else 0
        return length
