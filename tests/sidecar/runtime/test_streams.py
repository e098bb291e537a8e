"""Streams from generators, with real handler processes and real sidecars."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from carpool import wire
from carpool.http.client import ConnectionFailed, Pool
from tests.ports import free_port
from tests.sidecar.runtime.conftest import on_loop
from tests.sidecar.runtime.test_behind_watchdog import watchdog_on_path
from tests.tools import require_tool
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from carpool.http.client import StreamedResponse
    from tests.gate import Gate
    from tests.sidecar.runtime.conftest import Sidecar, Start

HANDLER = """
import fcntl, os, pathlib, threading
from watchdog_plugin import Event, ItemError, Reply

FOLDER = pathlib.Path(__file__).parent
stream_paths = ["/chat"]
lock, running, most = threading.Lock(), 0, 0

def load():
    if (FOLDER / "loading").exists():
        passed(FOLDER / "loading")

def handle_batch(items):
    return [{"batch": len(items)} for _ in items]

def passed(gate):
    with open(gate) as file:
        fcntl.flock(file, fcntl.LOCK_SH)

def stream(item):
    word, _, rest = item.bytes().decode().partition(":")
    return globals()[word](rest)

def gated(gate):
    global running, most
    with lock:
        running += 1
        most = max(most, running)
    pieces = 1
    try:
        yield "one"
        passed(gate)
        pieces += 1
        yield {"two": most}
        pieces += 1
        yield "three"
    finally:
        with lock:
            running -= 1
        with (FOLDER / "closed").open("a") as file:
            file.write(f"{pieces}\\n")

def first(gate):
    passed(gate)
    yield "late"

def die(gate):
    yield "one"
    passed(gate)
    os._exit(3)

def endless(_):
    try:
        while True:
            yield "more"
    finally:
        (FOLDER / "closed").write_text("endless")

def many(count):
    for _ in range(int(count)):
        with (FOLDER / "made").open("ab") as file:
            file.write(b"1")
        yield "x" * 65536
"""
ACCEPT = ("accept", "text/event-stream")
ONE, THREE, END = b"data: one\n\n", b"data: three\n\n", b"event: end\ndata:\n\n"


def two(most: int) -> bytes:
    """Return the second event if at most ``most`` streams have run at once."""
    return b'data: {"two":%d}\n\n' % most


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a sidecar with the handler above."""
    return written(tmp_path, HANDLER)


def written(folder: Path, handler: str) -> dict[str, str]:
    """Return the environment of a sidecar with this handler."""
    (folder / "function").mkdir()
    (folder / "function" / "handler.py").write_text(handler)
    return {
        "fprocess": f"{sys.executable} -m watchdog_plugin",
        "function_dir": str(folder / "function"),
    }


def streamed(
    running: Sidecar, body: str, *headers: tuple[str, str]
) -> AbstractAsyncContextManager[StreamedResponse]:
    """Send one request with a streamed response."""
    return running.pool.stream("POST", "/", (ACCEPT, *headers), body.encode())


async def until(chunks: AsyncIterator[bytes], event: bytes) -> bytes:
    """Return the data up to the end of ``event``, as the network may deliver pieces together."""
    data = b""
    while not data.endswith(event):
        data += await anext(chunks)
    return data


async def rest(chunks: AsyncIterator[bytes]) -> bytes:
    """Return the remaining data."""
    return b"".join([chunk async for chunk in chunks])


def closed(folder: Path) -> list[str]:
    """Return the number of pieces each generator had made when its ``finally`` ran."""
    file = folder / "function" / "closed"
    return file.read_text().split() if file.exists() else []


@asynccontextmanager
async def loading(
    sidecar: Start, gate: Gate, env: dict[str, str], folder: Path
) -> AsyncIterator[Sidecar]:
    """Run a sidecar that listens and whose function loads until the gate opens."""
    (folder / "function" / "loading").symlink_to(gate.path)
    async with sidecar(ready=False, **env) as running:
        await wait_until_async(running.listening, what="a listening sidecar")
        yield running


async def is_streamed(running: Sidecar, gate: Gate) -> None:
    """Check that the first piece arrives before the handler can make the second one."""
    async with streamed(running, f"gated:{gate.path}") as answer:
        assert 200 == answer.status
        assert b"text/event-stream" == answer.header(b"content-type")
        chunks = answer.chunks()
        assert ONE == await until(chunks, ONE)
        gate.open()
        assert two(1) + THREE + END == await rest(chunks)


@on_loop
async def test_responses_are_streamed_by_accept_header_or_path(
    sidecar: Start, gate: Gate, env: dict[str, str]
) -> None:
    """Responses are streamed by the Accept header or by a configured path; others are batched."""
    async with sidecar(**env) as running:
        await is_streamed(running, gate)
        assert b'{"batch":1}' == (await running.ask("gated:x")).body
        answer = await running.ask(f"gated:{gate.path}", target="/chat?x=1")
        assert ONE + two(1) + THREE + END == answer.body
        assert 2 == await running.metric('batch_streams_ended_total{how="complete"}')
        assert 0 == await running.metric("batch_streams")


@pytest.mark.slow
@on_loop
async def test_streams_run_beside_batches_up_to_limit(
    sidecar: Start, gate: Gate, env: dict[str, str]
) -> None:
    """Streams take no places from batches and run at most as many at once as the setting allows."""
    most = 8
    async with sidecar(carpool_streams_max=str(most), **env) as running:
        begun = 0

        async def stream() -> bytes:
            nonlocal begun
            async with streamed(running, f"gated:{gate.path}") as answer:
                chunks = answer.chunks()
                first = await until(chunks, ONE)
                begun += 1
                return first + await rest(chunks)

        streams = [asyncio.create_task(stream()) for _ in range(3 * most)]
        await running.until_metric("batch_streams", most)
        batched = await asyncio.gather(*[running.ask("x") for _ in range(100)])
        assert [200] * 100 == [answer.status for answer in batched]
        assert max(json.loads(answer.body)["batch"] for answer in batched) > 1
        await wait_until_async(lambda: begun == most, what="as many at once")
        assert most == await running.metric("batch_streams")
        gate.open()
        events = await asyncio.gather(*streams)
        assert {ONE + two(most) + THREE + END} == set(events)


@on_loop
async def test_a_caller_that_leaves_closes_the_generator(
    sidecar: Start, gate: Gate, env: dict[str, str], tmp_path: Path
) -> None:
    """When a caller leaves, its generator is closed after at most one more piece."""
    async with sidecar(carpool_streams_max="1", **env) as running:
        async with streamed(running, f"gated:{gate.path}") as answer:
            await until(answer.chunks(), ONE)
            # Without reading on: the connection is closed.
        await running.until_metric('batch_streams_ended_total{how="caller_left"}', 1)
        # The handler's connection is closed an iteration of the sidecar's loop after the count.
        await running.metric("batch_queue_requests")
        gate.open()
        await wait_until_async(lambda: closed(tmp_path), what="the generator's end")
        assert ["2"] == closed(tmp_path)
        gate.close()
        await is_streamed(running, gate)


@on_loop
async def test_waiting_stream_of_departed_caller_never_reaches_handler(
    sidecar: Start, gate: Gate, env: dict[str, str], tmp_path: Path
) -> None:
    """A stream whose caller leaves before its turn never reaches the handler; later ones do."""
    async with sidecar(carpool_streams_max="1", **env) as running:
        async with streamed(running, f"gated:{gate.path}") as answer:
            chunks = answer.chunks()
            await until(chunks, ONE)
            impatient = asyncio.create_task(running.ask("gated:", ACCEPT))
            patient = asyncio.create_task(running.ask(f"gated:{gate.path}", ACCEPT))
            await running.until_metric("batch_streams_waiting", 2)
            impatient.cancel()
            await running.until_metric('batch_requests_total{state="cancelled"}', 1)
            gate.open()
            await rest(chunks)
        assert ONE + two(1) + THREE + END == (await patient).body
        assert ["3", "3"] == closed(tmp_path)


@on_loop
async def test_streams_beyond_queue_limit_are_refused(
    sidecar: Start, gate: Gate, env: dict[str, str]
) -> None:
    """Streams beyond the queue limit get 429."""
    async with sidecar(carpool_streams_max="1", carpool_queue_max="1", **env) as running:
        word = f"gated:{gate.path}"
        two_of_them = [asyncio.create_task(running.ask(word, ACCEPT)) for _ in range(2)]
        await running.until_metric("batch_streams_waiting", 1)
        refused = await running.ask(word, ACCEPT)
        assert (429, b"1") == (refused.status, refused.header(b"retry-after"))
        gate.open()
        assert [200, 200] == [answer.status for answer in await asyncio.gather(*two_of_them)]


@pytest.mark.slow
@on_loop
async def test_deadline_applies_to_first_piece_only(
    sidecar: Start, gate: Gate, env: dict[str, str]
) -> None:
    """Without a first piece by the deadline the response is 504; later pieces have no deadline."""
    async with sidecar(**env) as running:
        missed = await running.ask(f"first:{gate.path}", ACCEPT, ("x-timeout", "50ms"))
        assert 504 == missed.status
        assert 1 == await running.metric('batch_requests_total{state="expired"}')
        waiting = asyncio.create_task(running.ask(f"first:{gate.path}", ACCEPT))
        await running.until_metric("batch_streams", 1)
        gate.open()
        assert b"data: late\n\n" + END == (await waiting).body


@pytest.mark.slow
@on_loop
async def test_stalled_stream_ends_in_error_and_handler_restart(
    sidecar: Start, gate: Gate, env: dict[str, str]
) -> None:
    """A stream without a piece for ``exec_timeout`` ends in an error and a handler restart."""
    async with sidecar(**{**env, "exec_timeout": "3s"}) as running:
        answer = await running.ask(f"gated:{gate.path}", ACCEPT)
        event = answer.body.removeprefix(ONE + b"event: error\ndata: ")
        assert {"error": "no piece of it arrived within 3 s"} == json.loads(event)
        await running.until_metric('batch_restarts_total{reason="hung"}', 1)
        await running.until_ready()
        gate.open()
        await is_streamed(running, gate)


@on_loop
async def test_stream_ends_with_error_event_when_handler_dies(
    sidecar: Start, gate: Gate, env: dict[str, str]
) -> None:
    """When the handler dies, the stream ends with ``event: error`` after the events so far."""
    async with sidecar(**env) as running:
        async with streamed(running, f"die:{gate.path}") as answer:
            chunks = answer.chunks()
            assert ONE == await until(chunks, ONE)
            gate.open()
            last = await rest(chunks)
        assert last.startswith(
            b'event: error\ndata: {"error": "the function ended the stream early'
        ), last
        assert 1 == await running.metric('batch_streams_ended_total{how="cut_off"}')
        await running.until_metric('batch_restarts_total{reason="died"}', 1)
        await running.until_ready()
        await is_streamed(running, gate)


@on_loop
async def test_a_drain_waits_for_streams(sidecar: Start, gate: Gate, env: dict[str, str]) -> None:
    """After SIGTERM a stream continues to its end before the process exits."""
    async with sidecar(**env) as running:
        async with streamed(running, f"gated:{gate.path}") as answer:
            chunks = answer.chunks()
            await until(chunks, ONE)
            running.process.send_signal(signal.SIGTERM)
            await wait_until_async(lambda: not running.listening(), what="no new connections")
            assert running.process.poll() is None
            gate.open()
            assert two(1) + THREE + END == await rest(chunks)
        await wait_until_async(lambda: running.process.poll() is not None, what="its end")
        assert 0 == running.process.returncode


@on_loop
async def test_streams_requested_before_function_is_ready_wait(
    sidecar: Start, gate: Gate, env: dict[str, str], tmp_path: Path
) -> None:
    """Streams requested before the function is ready wait with the other requests, then stream."""
    async with loading(sidecar, gate, env, tmp_path) as running:
        early = [asyncio.create_task(running.ask(f"first:{gate.path}", ACCEPT)) for _ in range(3)]
        plain = asyncio.create_task(running.ask("x"))
        await running.until_metric("batch_queue_requests", 4)
        gate.open()
        assert {b"data: late\n\n" + END} == {answer.body for answer in await asyncio.gather(*early)}
        assert 200 == (await plain).status


@on_loop
async def test_batch_of_streams_is_not_learned_as_execution_time(
    sidecar: Start, gate: Gate, env: dict[str, str], tmp_path: Path
) -> None:
    """A batch whose requests turn out to be streams is not learned as an execution time."""
    async with loading(sidecar, gate, env, tmp_path) as running:
        early = asyncio.create_task(running.ask(f"first:{gate.path}", ACCEPT))
        await running.until_metric("batch_queue_requests", 1)
        gate.open()
        assert 200 == (await early).status
        assert 0 == await running.metric("batch_execution_seconds_count")
        assert 200 == (await running.ask("x")).status
        assert 1 == await running.metric("batch_execution_seconds_count")


@pytest.mark.slow
@on_loop
async def test_generator_stops_when_caller_stops_reading(
    sidecar: Start, env: dict[str, str], tmp_path: Path
) -> None:
    """For a caller that stops reading, the generator makes no more than fits into buffers."""
    made = tmp_path / "function" / "made"
    async with sidecar(**env) as running:
        async with streamed(running, "many:1024") as answer:
            chunks = answer.chunks()
            await anext(chunks)
            await asyncio.gather(*[running.ask("x") for _ in range(200)])
            assert made.stat().st_size * 65536 < 8 * 2**20
            size = sum([len(chunk) async for chunk in chunks])
        assert 1024 == made.stat().st_size
        assert size > 1023 * 65536


@on_loop
async def test_streams_pass_the_watchdog(
    sidecar: Start, gate: Gate, env: dict[str, str], tmp_path: Path
) -> None:
    """Pieces pass the watchdog at once, and a caller that leaves closes the generator behind it.

    The watchdog's proxy still looks for the end of a request's body after the response has begun.
    """
    require_tool("fwatchdog")
    env = {**env, "PATH": watchdog_on_path(tmp_path), "sidecar_watchdog": "on"}
    env |= {"TMPDIR": str(tmp_path), "sidecar_watchdog_port": str(free_port())}
    env |= {"sidecar_handler_port": str(free_port())}
    async with sidecar(isolated=True, **env) as running:
        await is_streamed(running, gate)
        for _ in range(40):
            async with streamed(running, "many:1") as answer:
                assert (await rest(answer.chunks())).endswith(END)
        async with streamed(running, "endless:") as answer:
            await anext(answer.chunks())
        await wait_until_async(lambda: ["endless"] == closed(tmp_path), what="its end")


ALONE = """
from watchdog_plugin import Event, ItemError, Reply

def stream(item):
    word = item.bytes()
    if word == b"refused":
        raise ItemError("not this one", 422)
    if word == b"raises":
        raise KeyError("k")
    if word == b"whole":
        return {"whole": True}
    if word == b"rows":
        rows = iter([{"row": 1}, "two\\n", b"three"])
        return Reply(rows, 201, "application/x-ndjson", {"x-own": "1"})
    return pieces(word)

def pieces(word):
    yield Event("first", "named", "7")
    yield "two\\nlines"
    yield b"bytes"
    yield [1, 2.5, None]
    if word == b"midway":
        raise ItemError("no further")
    if word == b"broken":
        yield object()
    if word == b"openai":
        yield "[DONE]"
"""
FOUR = (
    b"event: named\nid: 7\ndata: first\n\ndata: two\ndata: lines\n\n"
    b"data: bytes\n\ndata: [1,2.5,null]\n\n"
)


@on_loop
async def test_every_kind_of_piece_and_end_is_streamed(sidecar: Start, tmp_path: Path) -> None:
    """A function with only ``stream`` yields every kind of piece and end, without ``Accept``."""
    async with sidecar(**written(tmp_path, ALONE)) as running:

        async def asked(word: str) -> tuple[int, bytes]:
            answer = await running.ask(word)
            return answer.status, answer.body

        assert (200, FOUR + END) == await asked("")
        assert (200, FOUR + b"data: [DONE]\n\n") == await asked("openai")
        failed = b'event: error\ndata: {"error": "no further"}\n\n'
        assert (200, FOUR + failed) == await asked("midway")
        status, body = await asked("broken")
        assert 200 == status
        assert body.startswith(FOUR + b'event: error\ndata: {"error": "stream raised TypeError')
        assert (422, b'{"error": "not this one"}') == await asked("refused")
        status, body = await asked("raises")
        assert (500, "stream raised KeyError: 'k'") == (
            status,
            json.loads(body)["error"].partition(";")[0],
        )
        assert (200, b'{"whole":true}') == await asked("whole")
        rows = await running.ask("rows")
        assert (201, b'{"row":1}\ntwo\nthree') == (rows.status, rows.body)
        assert b"1" == rows.header(b"x-own")
        assert None is rows.header(wire.STREAM_HEADER.encode())
        assert 405 == (await running.pool.request("HEAD", "/")).status


@on_loop
async def test_the_handler_streams_without_a_sidecar(
    sidecar: Start, gate: Gate, env: dict[str, str], tmp_path: Path
) -> None:
    """The handler streams as a plain HTTP server, as when of-watchdog calls it directly."""
    del sidecar
    listen = f"unix:{tmp_path}/handler.sock"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "watchdog_plugin"),
        env={**env, "handler_listen": listen, "PYTHONPATH": ":".join(sys.path)},
    )
    pool = Pool(listen)
    try:
        async with asyncio.timeout(HANG_S):
            while not await answers(pool):  # noqa: ASYNC110 - another process changes it
                await asyncio.sleep(0.01)
        body = f"gated:{gate.path}".encode()
        async with pool.stream("POST", "/", (ACCEPT,), body) as answer:
            chunks = answer.chunks()
            assert ONE == await until(chunks, ONE)
            gate.open()
            assert two(1) + THREE + END == await rest(chunks)
    finally:
        pool.close()
        process.kill()
        await process.wait()


async def answers(pool: Pool) -> Any:
    """Return whether the handler is ready."""
    try:
        return 200 == (await pool.request("GET", "/_/ready")).status
    except ConnectionFailed:
        return False
