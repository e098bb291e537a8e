"""Turns of streams at an instance that runs one at a time, and streams that break off."""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from carpool import wire
from carpool.errors import Overloaded
from carpool.http.client import ConnectionFailed
from carpool.stream_rule import StreamRule
from sidecar.core.dispatch import ANYWHERE, Route
from sidecar.runtime.relay import Relay
from sidecar.runtime.streams import Streams
from tests.sidecar.runtime.conftest import on_loop
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping


class _Answer:
    """Response that goes on until told to end, and may then break off."""

    status = 200
    headers = ((wire.STREAM_HEADER.encode(), b"true"), (b"content-type", b"text/plain"))

    def __init__(self, end: asyncio.Event, *, breaks: bool) -> None:
        self._end, self._breaks = end, breaks

    def header(self, name: bytes) -> bytes | None:
        return dict(self.headers).get(name)

    async def chunks(self) -> AsyncIterator[bytes]:
        yield b"first"
        await self._end.wait()
        if self._breaks:
            msg = "the connection was closed"
            raise ConnectionFailed(msg, sent=True)


class _Instance:
    """Instance that is up and streams."""

    stream_rule = StreamRule(everything=True)
    up = True
    headers = b""

    def __init__(self, instance_class: str = "", *, breaks: bool = False) -> None:
        self.streams = 0
        self.ejected = False
        self.end = asyncio.Event()
        self.calls: list[str] = []
        self.upstream = SimpleNamespace(
            available=lambda _: not self.ejected,
            instance_class=instance_class,
            overloaded=False,
            variant=instance_class,
        )
        self.streaming = self
        self._breaks = breaks

    @asynccontextmanager
    async def stream(self, *_: object, **__: object) -> AsyncIterator[_Answer]:
        yield _Answer(self.end, breaks=self._breaks)

    def probe_soon(self) -> None:
        self.calls.append("probe_soon")

    def unreachable(self, _: str) -> None:
        self.calls.append("unreachable")


class _Upstreams(list[Any]):
    routes: Mapping[str, Route] = {}

    def route(self, request: Any) -> Route:
        return self.routes.get(request.app, ANYWHERE)

    def close_departed(self) -> None:
        """Do nothing, as no instance is leaving."""


class _Exchange:
    """Exchange of a caller that reads everything."""

    body, target = b"", "/"

    def __init__(self) -> None:
        self.on_gone: Any = None
        self.begun = self.aborted = False

    def start(self, _: int, headers: list[tuple[str, str]]) -> None:
        self.begun = True
        self.variant = dict(headers).get("x-carpool-variant")

    def write(self, _: bytes) -> None:
        """Discard the data."""

    def end(self) -> None:
        """Do nothing."""

    fail = abort = lambda self, *_: setattr(self, "aborted", True)

    async def drained(self) -> None:
        """Return at once."""


def _ignore(*_: object) -> None:
    """Count nothing."""


def _streams(
    *instances: _Instance,
    unanswered: Callable[..., None] = _ignore,
    at_once: int = 1,
    routes: Mapping[str, Route] | None = None,
) -> Streams:
    metrics: Any = SimpleNamespace(
        watch_streams=_ignore, answered=_ignore, unanswered=unanswered, stream_ended=_ignore
    )
    readiness: Any = SimpleNamespace(failing=lambda: "", does_not_start=lambda: Overloaded("no"))
    upstreams: Any = _Upstreams(instances)
    upstreams.routes = routes or {}
    return Streams(upstreams, metrics, readiness, at_once, 99, math.inf)


def _begin(streams: Streams, app: str = "*") -> _Exchange:
    exchange = _Exchange()
    payload = SimpleNamespace(exchange=exchange, head=b"POST /\n")
    request: Any = SimpleNamespace(id=1, deadline=math.inf, payload=payload, app=app)
    streams.begin(request)
    return exchange


@on_loop
async def test_next_stream_starts_when_running_and_first_waiting_leave() -> None:
    """When the running and the first waiting stream leave together, the next one gets its turn."""
    streams = _streams(_Instance())
    first, second, third = (_begin(streams) for _ in range(3))
    await wait_until_async(lambda: first.begun, what="the first stream")
    first.on_gone()
    second.on_gone()
    await wait_until_async(lambda: third.begun, what="its turn")


@on_loop
async def test_waiting_stream_is_cancelled_when_caller_leaves_as_function_fails() -> None:
    """A waiting stream whose caller leaves as the function fails counts as cancelled."""
    counted: list[object] = []
    streams = _streams(_Instance(), unanswered=lambda _, state, *__: counted.append(state))
    first, second = _begin(streams), _begin(streams)
    await wait_until_async(lambda: first.begun, what="the first stream")
    second.on_gone()
    streams._readiness.failing = lambda: "it ended"
    streams.changed()
    await asyncio.sleep(0.01)
    assert ["cancelled"] == counted


@on_loop
async def test_stream_whose_caller_leaves_immediately_counts_as_cancelled() -> None:
    """A stream whose caller leaves at once counts as cancelled."""
    counted: list[object] = []
    streams = _streams(_Instance(), unanswered=lambda _, state, *__: counted.append(state))
    exchange = _begin(streams)
    exchange.on_gone()
    await wait_until_async(lambda: counted == ["cancelled"], what="its end")
    assert not exchange.begun


@on_loop
@pytest.mark.parametrize("begins", [False, True])
async def test_internal_error_ends_stream_and_frees_its_place(*, begins: bool) -> None:
    """After an internal error the caller gets an error or a cut, and the place is free again."""
    counted: list[object] = []
    instance = _Instance()
    streams = _streams(instance, unanswered=lambda _, state, *__: counted.append(state))
    exchange = _begin(streams)
    if begins:
        exchange.write = _raise  # type: ignore[assignment,method-assign]
    else:
        instance.stream = _raise  # type: ignore[assignment,method-assign]
    await wait_until_async(lambda: exchange.aborted, what="its end")
    assert (begins, 0) == (exchange.begun, instance.streams)
    assert ([] if begins else ["failed"]) == counted


def _raise(*_: object) -> NoReturn:
    raise RuntimeError


@on_loop
async def test_streams_follow_routes_of_plan() -> None:
    """Streams follow the plan's routes and shares, and a waiting one holds up no other route."""
    small, large, other = _Instance("small"), _Instance("large"), _Instance("large")
    routes = {"web": Route({"small": 1.0}), "*": Route({"small": 0.25, "large": 0.75})}
    streams = _streams(small, large, other, at_once=4, routes=routes)
    shared = [_begin(streams) for _ in range(8)]
    await wait_until_async(lambda: all(each.begun for each in shared), what="the streams")
    assert (2, 3, 3) == (small.streams, large.streams, other.streams)
    web = [_begin(streams, "web") for _ in range(3)]
    await wait_until_async(lambda: web[1].begun, what="all places of its class")
    late = _begin(streams)
    await wait_until_async(lambda: late.begun, what="a place beside those that wait")
    assert (False, "large") == (web[2].begun, late.variant)
    web[0].on_gone()
    await wait_until_async(lambda: web[2].begun, what="its turn")
    assert "small" == web[2].variant


@on_loop
async def test_overloaded_instance_is_chosen_last() -> None:
    """An overloaded instance is chosen last, as for batches."""
    busy, free = _Instance(), _Instance()
    busy.upstream.overloaded = True
    streams = _streams(busy, free, at_once=2)
    begun = [_begin(streams) for _ in range(3)]
    await wait_until_async(lambda: all(each.begun for each in begun), what="the streams")
    assert (1, 2) == (busy.streams, free.streams)


@on_loop
async def test_ejected_instance_gets_streams_when_ejection_ends() -> None:
    """An ejected instance gets waiting streams when its ejection ends, without an event."""
    instance = _Instance()
    instance.ejected = True
    exchange = _begin(_streams(instance))
    await asyncio.sleep(0.01)
    assert not exchange.begun
    instance.ejected = False
    await wait_until_async(lambda: exchange.begun, what="its turn")


@on_loop
async def test_broken_stream_triggers_probe_only() -> None:
    """A stream that breaks off only triggers a probe, as its generator may have raised."""
    instance = _Instance(breaks=True)
    exchange = _begin(_streams(instance))
    await wait_until_async(lambda: exchange.begun, what="the stream")
    instance.end.set()
    await wait_until_async(lambda: exchange.aborted, what="its end")
    assert ["probe_soon"] == instance.calls


@on_loop
async def test_relayed_stream_that_does_not_begin_restarts_handler() -> None:
    """A relayed stream that does not begin restarts the handler, as without a front."""
    hung, answered = asyncio.Event(), asyncio.Event()
    headers = {b"content-type": wire.CONTENT_TYPE.encode(), b"accept": b"text/event-stream"}

    @asynccontextmanager
    async def stream(*_: object, **__: object) -> AsyncIterator[None]:
        await asyncio.Event().wait()
        yield

    streaming = SimpleNamespace(stream=stream)
    local: Any = SimpleNamespace(
        streams=0, headers=b"", streaming=streaming, hung=lambda _: hung.set()
    )
    exchange: Any = SimpleNamespace(
        target="/", body=b"", header=headers.get, reply=lambda *_: answered.set()
    )
    assert Relay(local, 0.01, "").accepts(exchange)
    async with asyncio.timeout(HANG_S):
        await hung.wait()
        await answered.wait()
    await asyncio.sleep(0)
    assert 0 == local.streams
