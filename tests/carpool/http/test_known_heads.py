"""Which request heads are cached, so that they need not be parsed again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from carpool.http.server import Server
from tests.carpool.http.edge import LIMITS, Socketless, echo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.http.server import Exchange

POST = b"POST /a?b HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\n"


class Reading:
    """A server that records its exchanges."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.seen: list[Exchange] = []
        self.server = Server(self._look, LIMITS, loop)

    def _look(self, exchange: Exchange) -> None:
        self.seen.append(exchange)
        echo(exchange)


@pytest.fixture
def reading() -> Iterator[Reading]:
    """A recording server on an event loop of its own."""
    loop = asyncio.new_event_loop()
    yield Reading(loop)
    loop.close()


def test_repeated_head_is_parsed_once(reading: Reading) -> None:
    """A repeated head is parsed once for all connections, and each request keeps its own body."""
    first, second = Socketless(reading.server), Socketless(reading.server)
    first.feed(POST + b"abc", POST + b"def")
    second.feed(POST + b"\r\n\r")
    assert [b"abc", b"def", b"\r\n\r"] == [each.body for each in reading.seen]
    headers = reading.seen[0].headers
    assert all(each.headers is headers for each in reading.seen)
    assert ("POST", "/a?b") == (reading.seen[2].method, reading.seen[2].target)


@pytest.mark.parametrize(
    "pieces",
    [
        [POST[:20], POST[20:] + b"abc"],
        [POST, b"abc"],
        [POST + b"abc" + POST + b"abc"],
        [b"GET / HTTP/1.0\r\n\r\n"],
        [b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"],
        [b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"],
        [POST.replace(b"host: x", b"host: x\r\nexpect: 100-continue") + b"abc"],
        [POST.replace(b"host: x", b"host: x\r\nupgrade: h2c\r\nconnection: upgrade") + b"abc"],
        [POST.replace(b"/a", b"/" + b"a" * 1100) + b"abc"],
        [b"GET / HTTP/1.1\r\nhost: x\r\ncontent-length: x\r\n\r\n"],
    ],
)
def test_unusual_heads_are_not_kept(reading: Reading, pieces: list[bytes]) -> None:
    """Heads that are split, pipelined, HTTP/1.0, large, malformed or unusual are not kept."""
    Socketless(reading.server).feed(*pieces)
    assert 0 == len(reading.server.heads)


def test_known_heads_are_recognised_among_other_requests(reading: Reading) -> None:
    """Known heads are read correctly when pipelined, or among parts of other requests."""
    client = Socketless(reading.server)
    client.feed(
        POST + b"abc", POST + b"abc" + POST + b"d", b"ef", POST + b"gh", b"i" + POST, b"jkl"
    )
    assert [b"abc", b"abc", b"def", b"ghi", b"jkl"] == [each.body for each in reading.seen]


def test_heads_kept_per_client_are_limited(reading: Reading) -> None:
    """The number of heads kept per client is limited."""
    client = Socketless(reading.server)
    client.feed(*[b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n" % number for number in range(100)])
    assert 0 < len(reading.server.heads) <= 16
    assert 100 == len(reading.seen)


def test_total_number_of_kept_heads_is_limited(reading: Reading) -> None:
    """The number of heads kept is limited, however many clients send new ones."""
    for number in range(1000):
        Socketless(reading.server).feed(b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n" % number)
    assert 0 < len(reading.server.heads) <= 256
