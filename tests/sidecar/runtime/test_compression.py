"""Compression of responses for callers that accept it."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import zlib
from typing import TYPE_CHECKING

import pytest
import requests

from sidecar.runtime.compression import _weak, accepted
from tests.ports import free_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.sidecar.runtime.conftest import Start


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        (b"", ""),
        (b"identity", ""),
        (b"br", ""),
        (b"gzip", "gzip"),
        (b"deflate, GZIP;q=0.5", "gzip"),
        (b"gzip;q=0, deflate", "deflate"),
        (b"*", "gzip"),
        (b"*;q=0, deflate", "deflate"),
        (b"gzip;q=x", ""),
        (b"gzip; q=1.0", "gzip"),
    ],
)
def test_coding_is_chosen_by_accept_encoding(value: bytes | None, expected: str) -> None:
    """Gzip is preferred to deflate, and a coding with a zero or unreadable weight is not used."""
    assert expected == accepted(value)


@pytest.mark.parametrize(
    ("tag", "expected"), [('"1"', 'W/"1"'), ('W/"1"', 'W/"1"'), ("none", "none")]
)
def test_compressed_response_has_weak_etag(tag: str, expected: str) -> None:
    """A compressed response gets a weak ETag, as a strong one promises identical bytes."""
    assert ("etag", expected) == _weak(("etag", tag))
    assert ("x-etag", tag) == _weak(("x-etag", tag))


@pytest.mark.parametrize("size", [1000, 200_000], ids=["at once", "on another thread"])
def test_only_large_responses_are_compressed(sidecar: Start, size: int) -> None:
    """Large responses are compressed in the accepted coding, and small ones never."""

    async def run() -> None:
        text = "0123456789" * (size // 10)
        async with sidecar(carpool_compress_from=str(size)) as running:
            answer = await running.ask(text, ("accept-encoding", "gzip"))
            assert b"gzip" == answer.header(b"content-encoding")
            assert text.encode() == gzip.decompress(answer.body)
            assert len(answer.body) < size / 5
            answer = await running.ask(text, ("accept-encoding", "deflate"))
            assert text.encode() == zlib.decompress(answer.body)
            for plain in (
                await running.ask(text),
                await running.ask(text, ("accept-encoding", "br")),
                await running.ask(text[:-1], ("accept-encoding", "gzip")),
            ):
                assert plain.header(b"content-encoding") is None
                assert plain.body in (text.encode(), text[:-1].encode())
            assert b"accept-encoding" == (await running.ask(text)).header(b"vary")

    asyncio.run(run())


def test_head_response_has_headers_of_get(sidecar: Start) -> None:
    """HEAD has the headers of GET, except for the length of a compressed body."""

    async def run() -> None:
        async with sidecar(carpool_compress_from="1000") as running:

            async def head(size: int, accepts: str) -> dict[bytes, bytes]:
                text, headers = b"x" * size, [("accept-encoding", accepts)]
                answer = await running.pool.request("HEAD", "/", headers, text)
                assert (200, b"") == (answer.status, answer.body)
                return dict(answer.headers)

            coded = await head(2000, "gzip")
            assert (b"gzip", b"accept-encoding") == (coded[b"content-encoding"], coded[b"vary"])
            assert b"content-length" not in coded
            plain = await head(2000, "br")
            assert (b"2000", b"accept-encoding") == (plain[b"content-length"], plain[b"vary"])
            assert not {b"content-encoding", b"vary"} & (await head(999, "gzip")).keys()

    asyncio.run(run())


def test_nothing_is_compressed_without_setting(sidecar: Start) -> None:
    """Without the setting nothing is compressed, whatever the caller accepts."""

    async def run() -> None:
        async with sidecar() as running:
            answer = await running.ask("x" * 5000, ("accept-encoding", "gzip"))
            assert (None, b"x" * 5000) == (answer.header(b"content-encoding"), answer.body)

    asyncio.run(run())


def test_requests_library_reads_compressed_responses(sidecar: Start) -> None:
    """The ``requests`` library, which accepts gzip by default, reads concurrent responses."""
    where = f"127.0.0.1:{free_port()}"

    def listens() -> bool:
        with contextlib.suppress(requests.ConnectionError):
            return requests.get(f"http://{where}/_/ready", timeout=60).ok
        return False

    def call(text: str) -> None:
        answer = requests.post(f"http://{where}/", data=text, timeout=60)
        assert "gzip" == answer.headers["content-encoding"]
        assert text == answer.text

    async def run() -> None:
        async with sidecar(ready=False, carpool_compress_from="1", sidecar_listen=where):
            await asyncio.to_thread(wait_until, listens, what="the sidecar")
            texts = [f"{n} " * 40_000 for n in range(8)]
            await asyncio.gather(*(asyncio.to_thread(call, text) for text in texts))

    asyncio.run(run())
