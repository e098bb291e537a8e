"""gRPC calls to a test application: memory, errors and calls that end early."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from grpc import StatusCode, aio

from carpool.errors import NotFound
from carpool.http.call_server import ServedCalls
from carpool.http.server import Exchange, Limits, serve
from sidecar import serving
from sidecar.options import Options
from sidecar.runtime.oip_grpc import rpc, service
from sidecar.runtime.oip_grpc.requests import HttpRequest
from tests.sidecar.runtime.conftest import on_loop
from tests.sidecar.runtime.grpc_client import Caller, raw
from tests.sidecar.runtime.test_grpc import inferred
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from carpool.http.server import Server

NARROW = Limits(held_bytes=200_000, body_bytes=100_000)
ANSWER = b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [2]}]}'


@asynccontextmanager
async def calling(
    app: Callable[[Exchange], None], folder: Path
) -> AsyncIterator[tuple[Server, Caller]]:
    """Serve ``app``, with a client of it."""
    server = await serve(app, listen=f"unix:{folder}/http.sock", limits=NARROW)
    own = await service.serve(server, f"unix:{folder}/grpc.sock")
    async with aio.insecure_channel(own.address) as channel:
        yield server, Caller(channel)
    await own.stop(HANG_S)
    await server.stop()


def rows(count: int) -> Any:
    """Return ``count`` values of four bytes."""
    return np.zeros((1, count), np.float32)


@on_loop
async def test_memory_is_counted_until_a_call_has_ended(tmp_path: Path) -> None:
    """A call above the memory limit of all clients is refused, until others have ended."""
    waiting: list[Exchange] = []
    async with calling(waiting.append, tmp_path) as (server, caller):
        first = asyncio.create_task(inferred(caller, raw(rows(20_000))))
        await wait_until_async(lambda: waiting)
        assert 160_000 < server.held_bytes < NARROW.held_bytes
        refused = await inferred(caller, raw(rows(20_000)))
        assert StatusCode.UNAVAILABLE == refused.code()
        assert "too much memory is in use for other requests" == refused.details()
        assert "1" == dict(refused.trailing_metadata())["retry-after"]
        waiting[0].reply(200, ANSWER)
        assert [b"\0\0\0@"] == list((await first).raw_output_contents)
        await wait_until_async(lambda: not server.held_bytes)


@on_loop
async def test_application_is_notified_when_caller_leaves(tmp_path: Path) -> None:
    """The application is notified once of a caller that leaves, and later responses are dropped."""
    waiting: list[Exchange] = []
    left: list[Exchange] = []

    def app(exchange: Exchange) -> None:
        exchange.on_gone = lambda: left.append(exchange)
        waiting.append(exchange)

    async with calling(app, tmp_path) as (server, caller):
        call = caller.infer(raw(rows(1)))
        await wait_until_async(lambda: waiting)
        call.cancel()
        await wait_until_async(lambda: left)
        waiting[0].reply(200, ANSWER)
        assert waiting == left
        assert waiting[0].gone
        await wait_until_async(lambda: not server.held_bytes)


@on_loop
async def test_response_to_cancelled_call_is_dropped(tmp_path: Path) -> None:
    """A response may come after a call was cancelled and before its task has learned of that."""
    left: list[str] = []
    server = await serve(lambda _: None, listen=f"unix:{tmp_path}/http.sock")
    exchange = rpc._Exchange(server, HttpRequest("POST", "/"), (), math.inf)
    exchange.on_gone = lambda: left.append("left")
    exchange.answer.cancel()
    exchange.reply(200, ANSWER)
    exchange.leave()
    assert ([], True, False) == (left, exchange.answered, exchange.gone)
    await server.stop()


@on_loop
async def test_application_errors_become_grpc_statuses(tmp_path: Path) -> None:
    """Carpool errors keep their texts, others do not, and a cut response is an error too."""

    def app(exchange: Exchange) -> None:
        what = exchange.path.split("/")[3]
        if what == "known":
            msg = "there is none"
            raise NotFound(msg)
        if what == "unknown":
            raise ZeroDivisionError(what)
        if what == "upgrades":
            exchange.switch(b"", ServedCalls)
        exchange.abort()

    async with calling(app, tmp_path) as (_, caller):
        for model, code, text in (
            ("known", StatusCode.NOT_FOUND, "there is none"),
            ("unknown", StatusCode.INTERNAL, "internal error"),
            ("upgrades", StatusCode.INVALID_ARGUMENT, "a call cannot upgrade its connection"),
            ("aborts", StatusCode.INTERNAL, "the response was cut off"),
        ):
            error = await inferred(caller, raw(rows(1), model=model))
            assert (code, text) == (error.code(), error.details())


@on_loop
async def test_instances_behind_front_do_not_serve_grpc(tmp_path: Path) -> None:
    """Only the front serves gRPC, as its port would clash with those of its instances."""
    server = await serve(lambda _: None, listen=f"unix:{tmp_path}/http.sock")
    env = {"sidecar_grpc": f"unix:{tmp_path}/grpc.sock"}
    scaled = {"sidecar_scaler": "127.0.0.1:1", "sidecar_function": "fn"}
    for more, serves in (
        ({}, True),
        (scaled, True),
        ({**scaled, "sidecar_class": "c"}, False),
    ):
        own = await serving._grpc(Options.from_env({**env, **more}), server)
        assert serves == bool(own)
        if own:
            await own.stop(HANG_S)
    await server.stop()
