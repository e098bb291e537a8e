"""Where one request ends and the next begins: what could be read in two ways is refused.

The shapes are those of `tests.attack.framings`, and those that meet a limit; each is followed by a
request that only a server which repairs the framing would see.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from carpool.http.server import Server
from tests.attack.framings import FRAMINGS
from tests.carpool.http.edge import CLOSE, LIMITS, Socketless, echo, once

if TYPE_CHECKING:
    from carpool.http.server import Exchange

POST = b"POST / HTTP/1.1\r\nhost: x\r\n"
LENGTH = POST + b"content-length: "
CODED = POST + b"transfer-encoding: "
CHUNKED = CODED + b"chunked\r\n\r\n"
LAST = b"0\r\n\r\n"

REFUSED = {
    what: (statuses[0], raw.replace(b"~", b""))
    for what, (statuses, raw) in FRAMINGS.items()
    if len(statuses) == 1 and statuses[0] >= 400
} | {
    "huge header": (431, b"GET / HTTP/1.1\r\na: " + b"b" * 3000 + b"\r\n\r\n"),
    "huge target": (431, b"GET /" + b"b" * 3000 + b" HTTP/1.1\r\n\r\n"),
    "endless header": (431, b"GET / HTTP/1.1\r\na: " + b"b" * 3000),
    "many headers": (431, b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 101 + b"\r\n"),
    "huge trailers": (431, CHUNKED + b"0\r\n" + b"a: bcdefghijk\r\n" * 200 + b"\r\n"),
    "large body": (413, LENGTH + b"1001\r\n\r\n"),
    "large body, invited": (413, POST + b"expect: 100-continue\r\ncontent-length: 1001\r\n\r\n"),
    "large chunks": (413, CHUNKED + b"3e9\r\n" + b"x" * 1001),
}


@pytest.mark.parametrize(("status", "raw"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize(
    "before", [b"", b"GET /before HTTP/1.1\r\n\r\n"], ids=["", "behind another"]
)
def test_what_cannot_be_read_is_refused_and_closed(status: int, raw: bytes, before: bytes) -> None:
    """A clear status, a reason, and an end: the framing behind it cannot be trusted."""
    seen: list[str] = []

    def app(exchange: Exchange) -> None:
        seen.append(exchange.target)
        exchange.reply(200)

    answer = once(before + raw + b"GET /smuggled HTTP/1.1\r\n\r\n", app=app)
    refusal = answer[answer.index(b"HTTP/1.1 %d " % status) :]
    assert (["/before"] if before else []) == seen
    assert b'{"error": "' in refusal
    assert b"connection: close\r\n" in refusal
    assert 1 == refusal.count(b"\r\ndate: ")


ACCEPTED = {
    "length with zeros": (LENGTH + b"01\r\n" + CLOSE + b"a", b"POST / a"),
    "length with blanks": (LENGTH + b" 1 \t\r\n" + CLOSE + b"a", b"POST / a"),
    "coding in capitals": (CODED + b"CHUNKED\r\n" + CLOSE + b"1\r\na\r\n" + LAST, b"POST / a"),
    "chunk extensions": (
        CODED + b"chunked\r\n" + CLOSE + b'1;b;c="d"\r\na\r\n' + LAST,
        b"POST / a",
    ),
    "trailers": (CODED + b"chunked\r\n" + CLOSE + b"1\r\na\r\n0\r\nhost: y\r\n\r\n", b"POST / a"),
    "not a framing header": (POST + b"transfer_encoding: chunked\r\n" + CLOSE, b"POST / "),
    "blank line first": (b"\r\n\r\nGET /a HTTP/1.1\r\n" + CLOSE, b"GET /a "),
    "absolute form": (b"GET http://h:1/a?b=/c HTTP/1.1\r\nhost: x\r\n" + CLOSE, b"GET /a?b=/c "),
    "absolute, no path": (b"GET HTTPS://h HTTP/1.1\r\nhost: x\r\n" + CLOSE, b"GET / "),
    "absolute, query only": (b"GET http://h?a=/b HTTP/1.1\r\nhost: x\r\n" + CLOSE, b"GET /?a=/b "),
    "asterisk": (b"OPTIONS * HTTP/1.1\r\n" + CLOSE, b"OPTIONS * "),
    "two slashes": (b"GET //h/a HTTP/1.1\r\n" + CLOSE, b"GET //h/a "),
    "hundred headers": (b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 99 + CLOSE, b"GET / "),
}


@pytest.mark.parametrize(("raw", "end"), ACCEPTED.values(), ids=ACCEPTED)
def test_what_the_standard_allows_is_understood(raw: bytes, end: bytes) -> None:
    """Unusual, and not ambiguous."""
    answer = once(raw)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\n" + end)


def test_trailers_do_not_become_headers_of_the_next_request() -> None:
    """They are dropped with the request that they end."""
    seen: list[tuple[tuple[bytes, bytes], ...]] = []

    def app(exchange: Exchange) -> None:
        seen.append(exchange.headers)
        echo(exchange)

    once(CHUNKED + b"0\r\nx-app: y\r\n\r\nGET / HTTP/1.1\r\n" + CLOSE, app=app)
    assert [
        ((b"host", b"x"), (b"transfer-encoding", b"chunked")),
        ((b"connection", b"close"),),
    ] == seen


def test_nothing_is_read_behind_the_last_request() -> None:
    """After ``Connection: close`` there is one answer, and no complaint about what follows."""
    answer = once(b"GET /1 HTTP/1.1\r\n" + CLOSE + b"GET /2 HTTP/1.1\r\n\r\n\0\0")
    assert 1 == answer.count(b"HTTP/1.1 ")
    assert answer.endswith(b"GET /1 ")


def test_a_large_head_behind_a_large_body_is_still_too_large() -> None:
    """The limit counts a head's own bytes, however much else came in the same read."""
    fits = b"a: " + b"b" * 1900 + b"\r\n"
    ask = LENGTH + b"1000\r\n\r\n" + b"x" * 1000
    good = ask + b"GET /fits HTTP/1.1\r\n" + fits + CLOSE
    assert once(good).endswith(b"GET /fits ")
    assert b"HTTP/1.1 431 " in once(ask + b"GET /not HTTP/1.1\r\n" + fits * 2 + CLOSE)


@pytest.mark.parametrize(
    "opening", [b"GET / HTTP/1.1\r\na: ", CHUNKED + b"1;", CHUNKED + b"0\r\nt: "]
)
def test_framing_that_never_ends_is_refused(opening: bytes) -> None:
    """A header, a chunk extension, a trailer: read piece by piece it costs what a head may."""

    async def run() -> None:
        server = Server(echo, LIMITS, asyncio.get_running_loop())
        client = Socketless(server)
        client.feed(opening, *[b"x" * 500] * 3)
        assert not client.sent
        client.feed(*[b"x" * 500] * 3)
        assert client.sent.startswith(b"HTTP/1.1 431 ")
        client.hang_up()
        await asyncio.sleep(0)

    asyncio.run(run())


def test_an_oversized_upload_still_hears_why() -> None:
    """The client goes on sending while it is refused; the answer arrives all the same."""
    assert b" 413 " in once(LENGTH + b"5000000\r\n\r\n" + b"x" * 500_000)
