"""Where one request ends and the next begins: ambiguous framing is refused.

The cases are those of `tests.attack.framings`, and those that meet a limit; each is followed by a
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
    "huge header": (431, b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"b" * 3000 + b"\r\n\r\n"),
    "huge target": (431, b"GET /" + b"b" * 3000 + b" HTTP/1.1\r\nhost: x\r\n\r\n"),
    "endless header": (431, b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"b" * 3000),
    "many headers": (431, b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a:\r\n" * 101 + b"\r\n"),
    "huge trailers": (431, CHUNKED + b"0\r\n" + b"a: bcdefghijk\r\n" * 200 + b"\r\n"),
    "large body": (413, LENGTH + b"1001\r\n\r\n"),
    "large body, invited": (413, POST + b"expect: 100-continue\r\ncontent-length: 1001\r\n\r\n"),
    "large chunks": (413, CHUNKED + b"3e9\r\n" + b"x" * 1001),
}


@pytest.mark.parametrize(("status", "raw"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize(
    "before", [b"", b"GET /before HTTP/1.1\r\nhost: x\r\n\r\n"], ids=["", "behind another"]
)
def test_malformed_request_is_refused_and_connection_closed(
    status: int, raw: bytes, before: bytes
) -> None:
    """A malformed request gets a clear status, a reason, and the end of its connection."""
    seen: list[str] = []

    def app(exchange: Exchange) -> None:
        seen.append(exchange.target)
        exchange.reply(200)

    answer = once(before + raw + b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n", app=app)
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
    "blank line first": (b"\r\n\r\nGET /a HTTP/1.1\r\nhost: x\r\n" + CLOSE, b"GET /a "),
    "absolute form": (b"GET http://h:1/a?b=/c HTTP/1.1\r\nhost: x\r\n" + CLOSE, b"GET /a?b=/c "),
    "absolute, no path": (b"GET HTTPS://h HTTP/1.1\r\nhost: x\r\n" + CLOSE, b"GET / "),
    "absolute, query only": (b"GET http://h?a=/b HTTP/1.1\r\nhost: x\r\n" + CLOSE, b"GET /?a=/b "),
    "asterisk": (b"OPTIONS * HTTP/1.1\r\nhost: x\r\n" + CLOSE, b"OPTIONS * "),
    "two slashes": (b"GET //h/a HTTP/1.1\r\nhost: x\r\n" + CLOSE, b"GET //h/a "),
    "hundred headers": (b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a:\r\n" * 98 + CLOSE, b"GET / "),
}


@pytest.mark.parametrize(("raw", "end"), ACCEPTED.values(), ids=ACCEPTED)
def test_unusual_but_valid_requests_are_accepted(raw: bytes, end: bytes) -> None:
    """Unusual but unambiguous requests are accepted."""
    answer = once(raw)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\n" + end)


def test_trailers_do_not_become_headers_of_the_next_request() -> None:
    """Trailers are dropped with the request that they end."""
    seen: list[tuple[tuple[bytes, bytes], ...]] = []

    def app(exchange: Exchange) -> None:
        seen.append(exchange.headers)
        echo(exchange)

    once(CHUNKED + b"0\r\nx-app: y\r\n\r\nGET / HTTP/1.1\r\nhost: x\r\n" + CLOSE, app=app)
    assert [
        ((b"host", b"x"), (b"transfer-encoding", b"chunked")),
        ((b"host", b"x"), (b"connection", b"close")),
    ] == seen


def test_data_after_connection_close_request_is_ignored() -> None:
    """Data after a ``Connection: close`` request gets neither a response nor an error."""
    first = b"GET /1 HTTP/1.1\r\nhost: x\r\n" + CLOSE
    answer = once(first + b"GET /2 HTTP/1.1\r\nhost: x\r\n\r\n\0\0")
    assert 1 == answer.count(b"HTTP/1.1 ")
    assert answer.endswith(b"GET /1 ")


def test_head_limit_counts_only_head_bytes() -> None:
    """The limit counts only the bytes of the head, whatever else arrived in the same read."""
    fits = b"a: " + b"b" * 1900 + b"\r\n"
    ask = LENGTH + b"1000\r\n\r\n" + b"x" * 1000
    good = ask + b"GET /fits HTTP/1.1\r\nhost: x\r\n" + fits + CLOSE
    assert once(good).endswith(b"GET /fits ")
    assert b"HTTP/1.1 431 " in once(ask + b"GET /not HTTP/1.1\r\nhost: x\r\n" + fits * 2 + CLOSE)


@pytest.mark.parametrize(
    "opening", [b"GET / HTTP/1.1\r\nhost: x\r\na: ", CHUNKED + b"1;", CHUNKED + b"0\r\nt: "]
)
def test_framing_that_never_ends_is_refused(opening: bytes) -> None:
    """An endless header, chunk extension or trailer is limited like a head, even if it trickles."""

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


def test_refused_upload_receives_its_response() -> None:
    """The response arrives although the client goes on sending while it is refused."""
    assert b" 413 " in once(LENGTH + b"5000000\r\n\r\n" + b"x" * 500_000)
