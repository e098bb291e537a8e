"""Headers, heads and bodies that the first hop just accepts are accepted by all further ones.

The chain is real: provider, sidecar and handler; and the sidecar of one instance, which takes
whole batches from another sidecar.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from carpool import wire
from carpool.http.server import Limits
from carpool.sync import batch_key
from tests.attack.edges import Edges, connect
from tests.attack.test_framings import Answer, one_answer
from tests.sidecar.runtime.conftest import on_loop, sidecar
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sidecar.runtime.conftest import Start

__all__ = ["sidecar"]  # a fixture

MIB = 1024 * 1024
LIMITS = Limits()


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edges]:
    """Yield a provider and its sidecar, for bodies of one MiB."""
    env = {"sidecar_body_max_bytes": str(MIB), "handler_body_max_mib": "1"}
    with Edges(tmp_path_factory.mktemp("edges"), **env) as running:
        yield running


def asked(edges: Edges, raw: bytes, name: str = "provider", method: bytes = b"GET") -> Answer:
    """Return the answer to ``raw``, whose ``~`` is the function's path."""

    async def ask() -> Answer:
        edge = edges[name]
        reader, writer = await connect(edge)
        writer.write(raw.replace(b"~", edge.prefix))
        try:
            return await one_answer(reader, method)
        finally:
            writer.transport.abort()

    answer: Answer = edges.run(ask())
    return answer


@pytest.mark.parametrize("count", [LIMITS.headers, LIMITS.headers + 1])
def test_maximum_number_of_headers_passes_every_hop(edges: Edges, count: int) -> None:
    """The provider adds four, which the sidecar accepts; one more is refused at once."""
    named = b"".join([b"x-%d: y\r\n" % number for number in range(count - 1)])
    answer = asked(edges, b"GET ~/ HTTP/1.1\r\nhost: x\r\n" + named + b"\r\n")
    assert (200 if count == LIMITS.headers else 431) == answer.status, answer


@pytest.mark.parametrize("over", [0, 1])
def test_maximum_head_passes_every_hop(edges: Edges, over: int) -> None:
    """The head has a long host, which is forwarded as another header."""
    target = len(edges["provider"].prefix) + 1
    filler = LIMITS.head_bytes - target - len(b"host: \r\n") - len(b"x: \r\n") - 30_000 + over
    lines = b"host: %b\r\nx: %b\r\n\r\n" % (b"h" * 30_000, b"y" * filler)
    answer = asked(edges, b"GET ~/ HTTP/1.1\r\n" + lines)
    assert (431 if over else 200) == answer.status, answer.body[:80]


def test_maximum_body_passes_every_hop(edges: Edges) -> None:
    """The message that carries it to the handler is larger than the body."""
    body = b"b" * MIB
    head = b"POST ~/ HTTP/1.1\r\nhost: x\r\nx-call-id: %b\r\ncontent-length: %d\r\n\r\n"
    assert 200 == asked(edges, head % (b"c" * 60_000, MIB) + body).status
    assert 413 == asked(edges, head % (b"c", MIB + 1) + body + b"b").status


@pytest.mark.slow
@on_loop
async def test_instance_accepts_largest_batch_of_front(sidecar: Start) -> None:
    """The body is as large as the limit, and the batch adds its head and columns."""
    env = {
        "fprocess": f"{sys.executable} -m watchdog_plugin",
        "function_dir": "tests/attack/function",
        "sidecar_body_max_bytes": str(MIB),
        "handler_body_max_mib": "1",
        "sidecar_scaler": "127.0.0.1:1",
        "sidecar_class": "large",
        "sidecar_function": "fn",
        "sidecar_scaler_token": "t",
    }
    async with sidecar(**env) as running:
        head = b"POST /\nx-call-id: " + b"c" * 60_000 + b"\n"
        message = wire.encode_request([1], [1.0], [head], [b"b" * MIB])
        headers = wire.batch_headers(batch_key("t", "fn"))
        answer = await running.pool.request("POST", "/", headers, message, 30.0)
        assert 200 == answer.status, answer.body[:200]
        assert (200,) == wire.decode_answer(answer.body).statuses


@pytest.mark.parametrize("name", ["sidecar", "provider"])
def test_head_response_has_content_length_of_get(edges: Edges, name: str) -> None:
    """HEAD has no body at both edges, and the next request is answered."""

    async def lengths() -> list[bytes]:
        edge, found = edges[name], []
        reader, writer = await connect(edge)
        for method in (b"GET", b"HEAD", b"HEAD"):
            writer.write(b"%b %b/a/path HTTP/1.1\r\nhost: x\r\n\r\n" % (method, edge.prefix))
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            (line,) = [each for each in head.split(b"\r\n") if each.startswith(b"content-length")]
            if method == b"GET":
                assert b"GET /a/path\n" == await reader.readexactly(int(line.split()[1]))
            found.append(line)
        writer.transport.abort()
        return found

    got, *told = edges.run(asyncio.wait_for(lengths(), HANG_S))
    assert b"content-length: 12" == got
    assert [b"content-length: 13"] * 2 == told  # HEAD is a letter longer, and is echoed
