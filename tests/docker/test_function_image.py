"""A function's image, built from a shipped template, runs as a container of the provider.

Where of-watchdog's image cannot be pulled and no ``fwatchdog`` is on the PATH, a substitute takes
its place (``scripts/base_images.py`` warns of it); everything else is what users run.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from docker.client import from_env

from tests.docker.functions import ECHO
from tests.docker.stage import DockerStage
from tests.faas_stack.rig import Rig, story
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from carpool.http.client import Response
    from faas_stack.provider.local.containers.container_runner import ContainerRunner
    from faas_stack.provider.local.supervised_instance import SupervisedInstance

pytestmark = [pytest.mark.docker, pytest.mark.slow]
STAGE = DockerStage()
LABELS = {"com.carpool.slo": "2m", "com.carpool.batch.max": "16"}


def processes(instance: SupervisedInstance) -> list[dict[str, str]]:
    """Return the processes of an instance's container, with their ids on this machine."""
    runner: ContainerRunner = instance.runner  # type: ignore[assignment]
    engine = from_env()
    try:
        shown = engine.containers.get(runner.container).top(ps_args="-o pid,ppid,uid,args")
        return [dict(zip(shown["Titles"], row, strict=True)) for row in shown["Processes"]]
    finally:
        engine.close()


def pid_of(instance: SupervisedInstance, word: str) -> int:
    """Return the process of an instance with ``word`` in its command, or 0."""
    found = [p for p in processes(instance) if re.search(word, p["COMMAND"])]
    return int(found[0]["PID"]) if found else 0


async def ask(rig: Rig, body: bytes, **headers: str) -> Response:
    """Send one request to the function."""
    return await rig.call("POST", "/function/fn", body, list(headers.items()))


async def let_go(instance: SupervisedInstance) -> None:
    """Let an instance's handler finish items that are ``slow``."""
    runner: ContainerRunner = instance.runner  # type: ignore[assignment]

    def touch() -> None:
        engine = from_env()
        try:
            done = engine.containers.get(runner.container).exec_run(["touch", "/tmp/go-on"])
            assert 0 == done.exit_code, done.output
        finally:
            engine.close()

    await asyncio.to_thread(touch)


async def counted(rig: Rig, line: str) -> None:
    """Wait until the sidecar's metrics have a line."""
    async with asyncio.timeout(HANG_S):
        while line not in (await rig.call("GET", "/function/fn/metrics")).body.decode():
            pass


def tell(image: str) -> Callable[[Callable[[Rig], Any]], Callable[[Path], None]]:
    """Make a story of a function of ``image``, which is ready when the story begins."""

    def decorate(test: Callable[[Rig], Any]) -> Callable[[Path], None]:
        @story(STAGE)
        async def play(rig: Rig) -> None:
            await rig.deploy("fn", image=image, labels=LABELS, readOnlyRootFilesystem=True)
            await test(rig)

        @pytest.mark.usefixtures("echo")
        def run(tmp_path: Path) -> None:
            play(tmp_path)

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


@tell(ECHO)
async def test_sidecar_fwatchdog_and_handler_run_without_root(rig: Rig) -> None:
    """The sidecar starts fwatchdog, which starts the handler; none of them runs as root."""
    rows = processes(rig.instances("fn")[0])
    sidecar, watchdog, handler = (
        next(row for row in rows if re.search(word, row["COMMAND"]))
        for word in ("-m sidecar", "fwatchdog", "-m watchdog_plugin")
    )
    assert (sidecar["PID"], watchdog["PID"]) == (watchdog["PPID"], handler["PPID"])
    assert {"1000"} == {row["UID"] for row in rows}


@tell(ECHO)
async def test_requests_are_batched_and_get_their_own_responses(rig: Rig) -> None:
    """Under load, batches have up to the label's size, and each request gets its own answer."""
    sizes: list[int] = []

    async def caller(number: int) -> None:
        for turn in range(20):
            body = f"{number:04}{turn:04}".encode()
            answer = await rig.call("POST", "/function/fn", body, [("x-carpool-explain", "1")])
            assert (200, body.decode()) == (answer.status, json.loads(answer.body)["end"])
            sizes.append(int(answer.header(b"x-carpool-batch") or 0))

    await asyncio.gather(*(caller(number) for number in range(32)))
    assert 640 == len(sizes)
    assert 4 < max(sizes) <= 16


@tell(ECHO)
async def test_no_request_fails_while_replicas_change_under_load(rig: Rig) -> None:
    """Each request gets its answer during an update and with more, fewer and no replicas."""
    over, sizes = asyncio.Event(), list[int]()

    async def caller(number: int) -> None:
        turn = 0
        while not over.is_set():
            body, turn = f"{number:04}{turn:04}", turn + 1
            headers = [("x-carpool-explain", "1"), ("x-call-id", f"call-{body}")]
            answer = await rig.call("POST", "/function/fn", body.encode(), headers)
            assert 200 == answer.status, answer.body
            assert {"end": body, "call": f"call-{body}", "size": 8} == json.loads(answer.body)
            sizes.append(int(answer.header(b"x-carpool-batch") or 0))

    async def become(replicas: int) -> None:
        await rig.call("POST", "/system/scale-function/fn", {"replicas": replicas})
        replica_set = rig.function("fn").replica_set
        await wait_until_async(
            lambda: replicas == len(replica_set.replicas) == replica_set.available
        )

    callers = asyncio.gather(*(caller(number) for number in range(48)))
    await wait_until_async(lambda: len(sizes) > 200)
    (before,) = rig.instances("fn")
    document = {"service": "fn", "image": ECHO, "labels": LABELS, "envVars": {"revision": "2"}}
    assert 202 == (await rig.call("PUT", "/system/functions", document)).status
    replica_set = rig.function("fn").replica_set
    await wait_until_async(
        lambda: [False] == [r.instance is before for r in replica_set.replicas], what="the update"
    )
    await become(2)
    await become(1)
    (last,) = replica_set.replicas
    await rig.call("POST", "/system/scale-function/fn", {"replicas": 0})  # callers wake it again
    await wait_until_async(lambda: last not in replica_set.replicas and replica_set.available == 1)
    over.set()
    await callers
    assert 4 < max(sizes) <= 16


@tell(ECHO)
async def test_request_with_old_start_time_is_not_executed(rig: Rig) -> None:
    """A request whose X-Start-Time from the gateway is too old is not executed."""
    long_ago = str(time.time_ns() - 4 * 60 * 10**9)
    assert 504 == (await ask(rig, b"late", **{"x-start-time": long_ago})).status
    assert 200 == (await ask(rig, b"early", **{"x-start-time": str(time.time_ns())})).status


@tell(ECHO)
async def test_sigterm_drains_accepted_requests(rig: Rig) -> None:
    """Requests that a container has accepted before SIGTERM are answered."""
    (instance,) = rig.instances("fn")
    call = asyncio.ensure_future(ask(rig, b"slow"))
    await counted(rig, "batch_in_flight 1.0")
    await instance.runner.terminate()
    await let_go(instance)
    assert 200 == (await call).status
    await rig.ready("fn")


@tell(ECHO)
async def test_killed_handler_comes_back(rig: Rig) -> None:
    """A handler that dies is restarted within its container."""
    (instance,) = rig.instances("fn")
    sidecar, handler = (pid_of(instance, w) for w in ("-m sidecar", "-m watchdog_plugin"))
    os.kill(handler, signal.SIGKILL)
    await wait_until_async(lambda: pid_of(instance, "-m watchdog_plugin") not in (0, handler))
    await rig.ready("fn")
    assert 200 == (await ask(rig, b"again")).status
    assert sidecar == pid_of(instance, "-m sidecar")


@tell(ECHO)
async def test_large_and_chunked_bodies(rig: Rig) -> None:
    """Bodies of megabytes and bodies without a length arrive complete."""
    large = await ask(rig, b"x" * (8 * 2**20) + b"the end.")
    assert {"size": 8 * 2**20 + 8, "end": "the end."}.items() <= json.loads(large.body).items()
    host, _, port = rig.provider.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /function/fn HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n")
    writer.write(b"Connection: close\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    answer = await reader.read()
    writer.close()
    document = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert {"size": 5, "end": "abcde"}.items() <= document.items()


@tell(ECHO)
async def test_waiting_request_of_disconnected_client_is_not_executed(rig: Rig) -> None:
    """A waiting request whose client has disconnected is not executed."""
    (instance,) = rig.instances("fn")
    first = asyncio.ensure_future(ask(rig, b"slow"))
    await counted(rig, "batch_in_flight 1.0")
    second = asyncio.ensure_future(ask(rig, b"leaver"))
    await counted(rig, "batch_queue_requests 1.0")
    second.cancel()
    await counted(rig, 'batch_requests_total{state="cancelled"} 1.0')
    await let_go(instance)
    assert 200 == (await first).status


@pytest.mark.usefixtures("echo")
def test_cold_start_holds_requests(tmp_path: Path) -> None:
    """Requests for a function at zero wait for its container and handler, and are answered."""

    @story(STAGE)
    async def play(rig: Rig) -> None:
        # An objective much shorter than the start, which is not held against it.
        labels = {**LABELS, "com.carpool.slo": "500ms", "com.carpool.scale.min": "0"}
        await rig.deploy("fn", ready=False, image=ECHO, labels=labels)
        assert 0 == rig.function("fn").replicas
        answers = await asyncio.gather(*(ask(rig, b"cold") for _ in range(20)))
        assert {200} == {answer.status for answer in answers}
        assert 1 == rig.function("fn").replica_set.available

    play(tmp_path)
