"""Batches and their responses: each request gets its own, whatever the others get."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.sidecar.runtime.conftest import EXPLAIN, error

if TYPE_CHECKING:
    from tests.gate import Gate
    from tests.sidecar.runtime.conftest import Start

_MALFORMED = {"short": "answered", "garbage": "batch", "fail": "status 500", "badhead": "a header"}

_UNSENDABLE = [
    ("badhead", "a header is not"),
    ("head:x y: 1", "a header is not"),
    ("head:x: 1\rset-cookie: a=b", "a header is not"),
    ("head:x: \x01", "a header is not"),
    ("head:x: \x7f", "a header is not"),
    ("head:x(y): 1", "a header is not"),
    ("head:: 1", "a header is not"),
    ("head:x: " + "y" * 50_000, "expected at most 49152"),
    ("status:100", "its status is 100"),
    ("status:0", "its status is 0"),
    ("status:600", "its status is 600"),
]


def test_responses_are_never_mixed_up(sidecar: Start, gate: Gate) -> None:
    """Of two thousand marked requests from a hundred callers, each gets its own mark back."""

    async def run() -> None:
        async with sidecar() as running:
            sizes: list[int] = []

            async def caller(number: int) -> None:
                for turn in range(20):
                    mark = f"{number}/{turn}"
                    response = await running.ask(mark, EXPLAIN)
                    assert (200, mark) == (response.status, response.body.decode())
                    sizes.append(int(response.header(b"x-carpool-batch") or 0))

            await running.together(gate, *map(caller, range(100)))
            assert 2001 == await running.metric('batch_requests_total{state="done"}')
            assert max(sizes) > 4

    asyncio.run(run())


def test_one_bad_item_does_not_affect_others(sidecar: Start, gate: Gate) -> None:
    """An item that the function refuses gets its own status, and its neighbours are answered."""

    async def run() -> None:
        async with sidecar() as s:
            asked = [s.ask(word, EXPLAIN) for word in ("a", "b", "bad", "c")]
            responses = await s.together(gate, *asked)
            assert [200, 200, 422, 200] == [r.status for r in responses]
            assert [b"a", b"b", b"bad", b"c"] == [r.body for r in responses]
            assert {b"4"} == {r.header(b"x-carpool-batch") for r in responses}

    asyncio.run(run())


def test_malformed_batch_response_is_502_with_reason(sidecar: Start) -> None:
    """A malformed batch response is a 502 with the reason, never another request's response."""

    async def run() -> None:
        async with sidecar() as running:
            for word, text in _MALFORMED.items():
                response = await running.ask(word)
                assert 502 == response.status
                assert text in error(response.body)
            assert (200, b"fine") == (await running.ask("fine"))[::2]

    asyncio.run(run())


@pytest.mark.slow
def test_response_that_cannot_be_relayed_fails_alone(sidecar: Start, gate: Gate) -> None:
    """A response that cannot be passed on is a 502 with the reason; the others are answered."""

    async def run() -> None:
        # Four are no full batch, which a handler known as quick would be sent while it is busy.
        async with sidecar(carpool_batch_max="8") as running:
            for word, reason in _UNSENDABLE:
                asked = [running.ask(each, EXPLAIN) for each in ("a", word, "b", "c")]
                responses = await running.together(gate, *asked)
                said = [response.status for response in responses]
                assert [200, 502, 200, 200] == said, word[:40]
                assert reason in error(responses[1].body), word[:40]
                assert {b"4"} == {response.header(b"x-carpool-batch") for response in responses}

    asyncio.run(run())


def test_connection_headers_are_dropped(sidecar: Start) -> None:
    """Connection headers are dropped, so a handler cannot change framing or close callers."""
    lines = ["Connection: close", "Transfer-Encoding: chunked", "Content-Length: 1", "Upgrade: h2c"]
    lines += ["te: trailers", "Trailer: x", "Keep-Alive: timeout=0", "Proxy-Connection: close"]

    async def run() -> None:
        async with sidecar() as running:
            for line in lines:
                response = await running.ask(f"head:{line}\nX-Own: \xe9\t1")
                assert (200, b"with a head") == (response.status, response.body)
                names = {name for name, _ in response.headers}
                assert {b"content-type", b"content-length", b"date", b"x-own"} == names
                assert b"\xc3\xa9\t1" == response.header(b"x-own")  # the bytes that it wrote

    asyncio.run(run())


@pytest.mark.slow
def test_oversized_response_fails_alone(sidecar: Start, gate: Gate) -> None:
    """A response too large alone is a 502; if too large together, batches are divided."""

    async def run() -> None:
        async with sidecar(carpool_batch_max="8", sidecar_answer_max_bytes="1000000") as running:
            asked = [running.ask(each) for each in ("a", "big:30000000", "b", "c")]
            responses = await running.together(gate, *asked)
            assert [200, 502, 200, 200] == [response.status for response in responses]
            assert "sidecar_answer_max_bytes" in error(responses[1].body)
            asked = [running.ask("big:900000") for _ in range(4)]
            large = await running.together(gate, *asked)
            assert [(200, 900_000)] * 4 == [(each.status, len(each.body)) for each in large]

    asyncio.run(run())


@pytest.mark.parametrize("word", ["fail", "garbage", "crash"])
def test_only_offender_fails_in_batch_that_fails_or_kills_handler(
    sidecar: Start, gate: Gate, word: str
) -> None:
    """When one of sixteen requests fails the batch or kills the handler, fifteen are answered."""

    async def run() -> None:
        async with sidecar(carpool_batch_max="16") as running:
            words = [str(number) for number in range(16)]
            words[11] = word
            asked = [running.ask(each, EXPLAIN) for each in words]
            responses = await running.together(gate, *asked)
            statuses = [response.status for response in responses]
            assert 502 == statuses[11]
            assert [200] * 15 == statuses[:11] + statuses[12:]
            good = [
                (w, r.body.decode()) for w, r in zip(words, responses, strict=True) if w != word
            ]
            assert all(asked == answered for asked, answered in good)
            asked = [running.ask("neighbour", EXPLAIN), running.ask(word, EXPLAIN)]
            again = await running.together(gate, *asked)
            assert (200, 502) == (again[0].status, again[1].status)
            assert b"1" == again[0].header(b"x-carpool-batch")

    asyncio.run(run())
