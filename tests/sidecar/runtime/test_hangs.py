"""Handlers that hang, spin, are stopped or close their files, also behind of-watchdog."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from carpool import wire
from tests.sidecar.runtime.conftest import on_loop
from tests.tools import require_tool
from tests.waiting import HANG_S, stop_process

if TYPE_CHECKING:
    from pathlib import Path

    from carpool.http.client import Response
    from tests.sidecar.runtime.conftest import AdminClient, Handlers, Sidecar, Start

FUNCTION = """
import os
import signal
import threading

def handle_batch(items):
    words = {item.bytes() for item in items}
    if b"hang" in words:
        threading.Event().wait()
    if b"spin" in words:
        while True:
            pass
    if b"stop" in words:
        os.kill(os.getpid(), signal.SIGSTOP)
    if b"close" in words:
        os.closerange(3, 512)
    return [item.bytes() for item in items]
"""
IMPATIENT = ("x-timeout", "1s")  # shorter than exec_timeout: it is not sent again
BATCH = [("content-type", wire.CONTENT_TYPE)]
HUNG = 'batch_restarts_total{reason="hung"}'
DIED = 'batch_restarts_total{reason="died"}'


@pytest.fixture
def function(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Return the environment of a function that does what each item says.

    With `WATCHDOG`, its handler is behind of-watchdog.
    """
    (tmp_path / "function").mkdir()
    (tmp_path / "function" / "handler.py").write_text(FUNCTION)
    env = {
        "fprocess": f"{sys.executable} -m watchdog_plugin",
        "function_dir": str(tmp_path / "function"),
        "TMPDIR": str(tmp_path),
        "exec_timeout": "2s",
    }
    if getattr(request, "param", False):
        require_tool("fwatchdog")
        return {**env, "sidecar_watchdog": "on", "isolated": "1"}
    return env


ALONE = pytest.param(False, id="handler alone")
WATCHDOG = pytest.param(True, id="behind of-watchdog", marks=pytest.mark.slow)
BOTH = pytest.mark.parametrize("function", [ALONE, WATCHDOG], indirect=True)

# Each request leaves with three others, so that no batch is left to chance.
TOGETHER = {
    "carpool_batch_policy": "fixed",
    "carpool_batch_max": "4",
    "carpool_batch_wait": "60s",
}


def started(sidecar: Start, function: dict[str, str], **env: str) -> Any:
    """Start a sidecar in front of this function."""
    env = {**function, **env}
    return sidecar(isolated=bool(env.pop("isolated", "")), **env)


async def together(running: Sidecar, *words: str) -> list[int]:
    """Send four requests at once and return their statuses."""
    offenders = ("hang", "spin", "stop")
    asked = [running.ask(word, *([IMPATIENT] if word in offenders else [])) for word in words]
    answers = await asyncio.gather(*asked)
    bodies = [answer.body.decode() for answer in answers]
    assert all(a.status != 200 or w == b for a, w, b in zip(answers, words, bodies, strict=True))
    return [answer.status for answer in answers]


@pytest.mark.parametrize(
    ("offence", "function"),
    [
        pytest.param("hang", False, id="hang"),
        pytest.param("spin", False, id="spin", marks=pytest.mark.slow),
        pytest.param("stop", False, id="stop"),
        pytest.param("hang", True, id="hang behind of-watchdog", marks=pytest.mark.slow),
        pytest.param("stop", True, id="stop behind of-watchdog", marks=pytest.mark.slow),
    ],
    indirect=["function"],
)
@on_loop
async def test_hung_handler_is_restarted_and_other_requests_answered(
    offence: str, sidecar: Start, function: dict[str, str]
) -> None:
    """When one of four requests hangs, the other three and later ones are answered."""
    async with started(sidecar, function, **TOGETHER) as running:
        assert [504, 200, 200, 200] == await together(running, offence, "a", "b", "c")
        assert [200] * 4 == await together(running, "d", "e", "f", "g")
        assert (200, 1) == (await running.ready(), await running.metric(HUNG))


@pytest.mark.slow
@on_loop
async def test_a_hung_handler_is_not_ready(sidecar: Start, function: dict[str, str]) -> None:
    """A hung handler is not ready until its successor is, which answers waiting requests."""
    async with started(sidecar, function, carpool_batch_max="1") as running:
        hanging = asyncio.create_task(running.ask("hang"))
        await until_metric(running, "batch_in_flight", 1)
        waiting = asyncio.create_task(running.ask("next"))
        seen = []
        while not hanging.done():
            seen.append(await running.ready())
            await asyncio.sleep(0.01)
        seen.append(await running.ready())
        assert (200, 503) == (seen[0], seen[-1])
        assert (504, 200) == ((await hanging).status, (await waiting).status)
        await running.until_ready()


@pytest.mark.slow
@BOTH
@on_loop
async def test_a_handler_that_closes_its_files_is_restarted(
    sidecar: Start, function: dict[str, str]
) -> None:
    """A handler without open files ends itself when the next connection fails, and is restarted."""
    async with started(sidecar, function, sidecar_silence_max="60s", exec_timeout="60s") as running:
        closing = asyncio.create_task(running.ask("close", IMPATIENT))
        await running.until_metric(DIED, 1)
        assert 0 == await running.metric(HUNG)
        await running.until_ready()
        assert 200 == (await running.ask("next")).status
        assert (await closing).status in {502, 504}


@BOTH
@on_loop
async def test_zero_exec_timeout_means_no_limit(sidecar: Start, function: dict[str, str]) -> None:
    """``exec_timeout=0`` means no limit and no restart, as in of-watchdog."""
    async with started(sidecar, function, exec_timeout="0") as running:
        assert 200 == (await running.ask("at once")).status
        hanging = asyncio.create_task(running.ask("hang", ("x-carpool-class", "batch")))
        await until_metric(running, "batch_in_flight", 1)
        assert 200 == await running.ready()
        hanging.cancel()
        await until_metric(running, 'batch_requests_total{state="cancelled"}', 1)
        os.kill(running.handler_pid(), signal.SIGKILL)
        await until_metric(running, DIED, 1)
        assert 0 == await running.metric(HUNG)


@on_loop
async def test_stopped_handler_leaves_rotation_until_it_continues(sidecar: Start) -> None:
    """A stopped handler is unready after one probe; deadlines hold, and other requests wait."""
    pair = {**TOGETHER, "carpool_batch_max": "2"}
    async with sidecar(**pair) as running:
        stop_process(running.handler_pid())
        waits = asyncio.create_task(running.ask("waits"))
        late = await running.ask("late", IMPATIENT)
        assert (504, 503) == (late.status, await running.ready())
        os.kill(running.handler_pid(), signal.SIGCONT)
        assert 200 == (await waits).status
        await running.until_ready()
        assert 0 == await running.metric(HUNG)


@on_loop
async def test_hung_handler_among_several_is_ejected(
    sidecar: Start, handler: Handlers, admin: AdminClient
) -> None:
    """A hung handler that still answers probes and is no child process is ejected at once."""
    where = [handler("one"), handler("two")]
    env = {"sidecar_upstreams": ",".join(where), "exec_timeout": "1s"}
    address = admin.pool.address
    async with sidecar(**env, sidecar_admin=address, carpool_batch_max="1") as running:
        hung = await running.ask("hang")
        answers = [await running.ask(f"{number}") for number in range(8)]
        batches = await admin.get("/v1/batches?limit=9")
        assert (504, [200] * 8) == (hung.status, [answer.status for answer in answers])
        first, *later = [batch["upstream"] for batch in reversed(batches)]
        assert first not in later
        assert 200 == await running.ready()
    admin.pool.close()


@pytest.mark.slow
@BOTH
@on_loop
async def test_an_instance_of_a_front_restarts_its_own_handler(
    sidecar: Start, function: dict[str, str]
) -> None:
    """An instance behind a front answers a hung batch with 504 and restarts its handler."""
    env = {"sidecar_scaler": "127.0.0.1:9", "sidecar_function": "f", "sidecar_class": "c"}
    env["exec_timeout"] = "1s"
    async with started(sidecar, function, **env) as running:
        answer = await batch(running, "hang")
        assert 504 == answer.status
        assert answer.header(b"x-openfaas-internal") in {b"sidecar", b"of-watchdog"}
        await until_metric(running, HUNG, 1)
        await running.until_ready()
        assert 200 == (await batch(running, "fine")).status
        with pytest.raises(TimeoutError):  # it leaves, long before the batch has hung
            await asyncio.wait_for(batch(running, "hang"), 0.2)
        await until_metric(running, HUNG, 2)
        await running.until_ready()
        assert 200 == (await batch(running, "fine")).status


async def batch(running: Sidecar, word: str) -> Response:
    """Send a batch of one, as a front does."""
    head = wire.build_head("POST /", [])
    message = wire.encode_request([1], [math.inf], [head], [word.encode()])
    return await running.pool.request("POST", "/", BATCH, message, HANG_S)


async def until_metric(running: Sidecar, name: str, value: float) -> None:
    """Wait until a series has a value."""
    async with asyncio.timeout(HANG_S):
        while await running.metric(name) != value:  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.01)
