"""Streams of an author's generator, from real handler processes through real sidecars."""

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
    """The second event, while at most so many streams have run at once."""
    return b'data: {"two":%d}\n\n' % most


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The environment of a sidecar with the handler above."""
    return written(tmp_path, HANDLER)


def written(folder: Path, handler: str) -> dict[str, str]:
    """The environment of a sidecar with this handler."""
    (folder / "function").mkdir()
    (folder / "function" / "handler.py").write_text(handler)
    return {
        "fprocess": f"{sys.executable} -m watchdog_plugin",
        "function_dir": str(folder / "function"),
    }


def streamed(
    running: Sidecar, body: str, *headers: tuple[str, str]
) -> AbstractAsyncContextManager[StreamedResponse]:
    """One request whose answer is streamed."""
    return running.pool.stream("POST", "/", (ACCEPT, *headers), body.encode())


async def until(chunks: AsyncIterator[bytes], event: bytes) -> bytes:
    """What comes until an event is whole; what the network delivers together comes together."""
    data = b""
    while not data.endswith(event):
        data += await anext(chunks)
    return data


async def rest(chunks: AsyncIterator[bytes]) -> bytes:
    """All that still comes."""
    return b"".join([chunk async for chunk in chunks])


def closed(folder: Path) -> list[str]:
    """How many pieces each generator had made when its ``finally`` ran."""
    file = folder / "function" / "closed"
    return file.read_text().split() if file.exists() else []


@asynccontextmanager
async def loading(
    sidecar: Start, gate: Gate, env: dict[str, str], folder: Path
) -> AsyncIterator[Sidecar]:
    """A sidecar that listens, and whose function loads until the gate opens."""
    (folder / "function" / "loading").symlink_to(gate.path)
    async with sidecar(ready=False, **env) as running:
        await wait_until_async(running.listening, what="a listening sidecar")
        yield running


async def is_streamed(running: Sidecar, gate: Gate) -> None:
    """The first piece is here while the handler cannot yet make the second one."""
    async with streamed(running, f"gated:{gate.path}") as answer:
        assert 200 == answer.status
        assert b"text/event-stream" == answer.header(b"content-type")
        chunks = answer.chunks()
        assert ONE == await until(chunks, ONE)
        gate.open()
        assert two(1) + THREE + END == await rest(chunks)


@on_loop
async def test_pieces_come_as_they_are_yielded(
    sidecar: Start, gate: Gate, env: dict[str, str]
) -> None:
    """By accepting them, or by a path that the author has named; others are batched."""
    async with sidecar(**env) as running:
        await is_streamed(running, gate)
        assert b'{"batch":1}' == (await running.ask("gated:x")).body
        answer = await running.ask(f"gated:{gate.path}", target="/chat?x=1")
        assert ONE + two(1) + THREE + END == answer.body
        assert 2 == await running.metric('batch_streams_ended_total{how="complete"}')
        assert 0 == await running.metric("batch_streams")


@pytest.mark.slow
@on_loop
async def test_many_at_once_beside_batches_and_some_wait_for_their_turn(
    sidecar: Start, gate: Gate, env: dict[str, str]
) -> None:
    """Streams take neither the places of batches nor more places than the setting has."""
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
    """Its ``finally`` runs, no piece after the next is made, and its place is free again."""
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
async def test_a_caller_that_leaves_before_its_turn_is_forgotten(
    sidecar: Start, gate: Gate, env: dict[str, str], tmp_path: Path
) -> None:
    """It never reaches the handler, and those behind it do."""
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
async def test_too_many_that_wait_are_refused(
    sidecar: Start, gate: Gate, env: dict[str, str]
) -> None:
    """As many wait as requests may in the queue; the next one gets 429."""
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
async def test_the_deadline_is_that_of_the_first_piece(
    sidecar: Start, gate: Gate, env: dict[str, str]
) -> None:
    """504 without it; once it is there, the others may take as long as they like."""
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
async def test_a_stream_without_a_next_piece_ends_with_an_error_and_a_new_handler(
    sidecar: Start, gate: Gate, env: dict[str, str]
) -> None:
    """As a batch that takes longer than ``exec_timeout``: the handler hangs, and is restarted."""
    async with sidecar(**{**env, "exec_timeout": "3s"}) as running:
        answer = await running.ask(f"gated:{gate.path}", ACCEPT)
        event = answer.body.removeprefix(ONE + b"event: error\ndata: ")
        assert {"error": "no piece of it arrived within 3 s"} == json.loads(event)
        await running.until_metric('batch_restarts_total{reason="hung"}', 1)
        await running.until_ready()
        gate.open()
        await is_streamed(running, gate)


@on_loop
async def test_a_handler_that_dies_is_told_within_the_stream(
    sidecar: Start, gate: Gate, env: dict[str, str]
) -> None:
    """The events so far, then ``event: error``, and a whole answer: the caller knows the end."""
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
    """After SIGTERM a stream goes on to its end, and then the process ends."""
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
async def test_what_comes_before_the_function_is_ready_is_streamed_too(
    sidecar: Start, gate: Gate, env: dict[str, str], tmp_path: Path
) -> None:
    """It waits among the requests for batches, as nothing is known of the function yet."""
    async with loading(sidecar, gate, env, tmp_path) as running:
        early = [asyncio.create_task(running.ask(f"first:{gate.path}", ACCEPT)) for _ in range(3)]
        plain = asyncio.create_task(running.ask("x"))
        await running.until_metric("batch_queue_requests", 4)
        gate.open()
        assert {b"data: late\n\n" + END} == {answer.body for answer in await asyncio.gather(*early)}
        assert 200 == (await plain).status


@on_loop
async def test_a_batch_whose_requests_are_to_be_streamed_is_no_execution(
    sidecar: Start, gate: Gate, env: dict[str, str], tmp_path: Path
) -> None:
    """Its time, which is nearly none, is not learned as that of a batch."""
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
async def test_no_more_is_made_than_is_read(
    sidecar: Start, env: dict[str, str], tmp_path: Path
) -> None:
    """64 MiB for a caller that reads the first piece alone: what is made fits into buffers."""
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
    """Each piece at once; a caller that leaves closes the generator behind it, too.

    Its proxy still looks for the end of a request's body while the answer may have begun.
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
async def test_every_kind_of_piece_and_of_end(sidecar: Start, tmp_path: Path) -> None:
    """A function of ``stream`` alone, called with no ``Accept`` at all."""
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
    """As a plain HTTP server, where of-watchdog is told to call it directly."""
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
    """Whether a handler is ready."""
    try:
        return 200 == (await pool.request("GET", "/_/ready")).status
    except ConnectionFailed:
        return False
