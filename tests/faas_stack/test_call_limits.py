"""Tests of how long calls may take, and of calls whose replica does not respond."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from carpool.app_setting import App
from carpool.http.client import ConnectionFailed
from carpool.settings import FunctionSettings
from faas_stack.provider.call_limit import call_limit_s
from faas_stack.provider.deployment import Deployment
from faas_stack.provider.local import supervised_instance
from tests.faas_stack.rig import ProcessStage, story
from tests.waiting import stop_process, wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from carpool.http.client import Response
    from tests.faas_stack.rig import Rig

LIMIT_S = 91.0  # of a function that sets nothing


@pytest.mark.parametrize(
    ("environment", "settings", "limit_s"),
    [
        pytest.param({}, {}, 30 + 60 + 1, id="nothing set: as sidecar and watchdog have it"),
        pytest.param({"exec_timeout": "5m"}, {}, 300 + 60 + 1, id="the function's own"),
        pytest.param({"exec_timeout": "7"}, {}, 7 + 60 + 1, id="whole seconds, as the watchdog's"),
        pytest.param(
            {"exec_timeout": "1s", "read_timeout": "2s", "write_timeout": "3s"},
            {},
            3 + 60 + 1,
            id="the longest of three",
        ),
        pytest.param({"exec_timeout": "0"}, {}, math.inf, id="switched off"),
        pytest.param({"exec_timeout": "soon"}, {}, 30 + 60 + 1, id="ill-formed: ignored"),
        pytest.param({}, {"slo_s": 0.2}, 30 + 60 + 1, id="background requests may wait longer"),
        pytest.param({}, {"slo_s": 120.0}, 30 + 120 + 1, id="a long objective is waited for"),
        pytest.param({}, {"apps": (App("slow", 300.0),)}, 30 + 300 + 1, id="of an application"),
    ],
)
def test_call_limit(environment: dict[str, str], settings: dict[str, Any], limit_s: float) -> None:
    """A call may take the sum of its sidecar's own limits."""
    deployment = Deployment("fn", "i", env_vars=environment, settings=FunctionSettings(**settings))
    assert limit_s == call_limit_s(deployment)


@pytest.mark.slow
@story(ProcessStage())
async def test_response_size_limit_is_that_of_sidecar(rig: Rig) -> None:
    """The provider accepts responses as large as the sidecar does, and at least its default."""
    for most, expected in ((2**20, 2**26), (2**30, 2**30)):
        env = {"sidecar_answer_max_bytes": str(most)}
        await rig.deploy(f"fn{most}", envVars=env)
        (replica,) = rig.function(f"fn{most}").running
        assert expected == replica.pool.answer_bytes


async def begun(rig: Rig, path: str, **headers: str) -> asyncio.Future[Response]:
    """Start a call and return it once a replica has it."""
    replicas = rig.function("fn").running
    before = sum(replica.in_flight for replica in replicas)
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    call = asyncio.ensure_future(rig.call("GET", f"/function/fn{path}", headers=named))
    await wait_until_async(lambda: sum(replica.in_flight for replica in replicas) > before)
    return call


async def swept(rig: Rig, after_s: float) -> None:
    """Let the provider check its calls as it would after ``after_s``."""
    rig.provider._proxy.sweep(asyncio.get_running_loop().time() + after_s)
    await asyncio.sleep(0)


@story()
async def test_slow_call_is_504_and_cancelled(rig: Rig) -> None:
    """A call that takes too long gets a 504 with the limit, and is cancelled at the function."""
    await rig.deploy("fn")
    call = await begun(rig, "/hang")
    await rig.printed("fn", "hanging")
    await swept(rig, LIMIT_S - 1)
    assert 1 == rig.function("fn").running[0].in_flight
    await swept(rig, LIMIT_S)
    answer = await call
    assert (504, b"proxy") == (answer.status, answer.header(b"x-openfaas-internal"))
    assert "did not answer within 91 s" in answer.body.decode()
    assert 0 == rig.function("fn").running[0].in_flight
    await rig.printed("fn", "the client left")
    assert 1 == rig.function("fn").answers[504]


@pytest.mark.slow
@story()
async def test_an_update_changes_the_limit(rig: Rig) -> None:
    """The limit is that of the current deployment."""
    await rig.deploy("fn", envVars={"exec_timeout": "1m"})
    assert 60 + 60 + 1 == rig.function("fn").call_limit_s
    document = {"service": "fn", "image": rig.function("fn").deployment.image}
    assert 202 == (await rig.call("PUT", "/system/functions", document)).status
    assert LIMIT_S == rig.function("fn").call_limit_s


@pytest.mark.slow
@story()
async def test_x_timeout_limits_a_call(rig: Rig) -> None:
    """A call ends a second after its X-Timeout, by when the replica has had time to respond."""
    await rig.deploy("fn")
    call = await begun(rig, "/hang", x_timeout="5s")
    await swept(rig, 5)
    assert 1 == rig.function("fn").running[0].in_flight
    await swept(rig, 6)
    answer = await call
    assert 504 == answer.status
    assert "5 s that X-Timeout gives it" in answer.body.decode()


@story()
async def test_wait_for_replica_counts_only_for_x_timeout(rig: Rig) -> None:
    """The caller's limit starts when the call arrives, the function's when it is forwarded."""
    await rig.deploy("fn", ready=False, envVars={"ready_after": "60"})
    hurried = asyncio.ensure_future(rig.call("GET", "/function/fn", headers=[("x-timeout", "5s")]))
    patient = asyncio.ensure_future(rig.call("GET", "/function/fn"))
    await wait_until_async(lambda: rig.function("fn").invocations == 2)
    await swept(rig, 1000)
    assert 504 == (await hurried).status
    assert not patient.done()
    patient.cancel()


@story()
async def test_streamed_response_is_limited_per_chunk(rig: Rig) -> None:
    """A streamed response is limited from chunk to chunk, not as a whole or by X-Timeout."""
    await rig.deploy("fn")
    headers = [("accept", "text/event-stream"), ("x-timeout", "1s")]
    async with rig.client.stream("GET", "/function/fn/events", headers) as answer:
        chunks = answer.chunks()
        assert b"data: 1\n\n" == await anext(chunks)
        await swept(rig, LIMIT_S - 1)
        assert 1 == rig.function("fn").running[0].in_flight
        await swept(rig, LIMIT_S)
        with pytest.raises(ConnectionFailed):
            await anext(chunks)
    await wait_until_async(lambda: rig.function("fn").answers[504] == 1)


@pytest.mark.slow
@story()
async def test_call_that_was_not_begun_is_retried(rig: Rig) -> None:
    """A call that a replica has not begun, as its 503 says, is sent again a few times."""
    await rig.deploy("fn")
    answer = await rig.call("POST", "/function/fn/refuse?times=2", b"body")
    assert 200 == answer.status
    assert b'"body": "body"' in answer.body


@pytest.mark.slow
@story()
async def test_last_refusal_is_returned_after_five_attempts(rig: Rig) -> None:
    """After five attempts the client gets the response of the fifth."""
    await rig.deploy("fn")
    answer = await rig.call("POST", "/function/fn/refuse?times=99")
    assert (503, b"not now") == (answer.status, answer.body)
    assert 200 == (await rig.call("GET", "/function/fn")).status


@contextlib.asynccontextmanager
async def a_silent_replica(rig: Rig) -> AsyncIterator[list[asyncio.Future[Response]]]:
    """Send eight calls to two replicas, one of which is stopped and silent and has four of them.

    The other one is stopped, too, until all eight are in flight, as each response would make room.
    """
    await rig.call("POST", "/system/scale-function/fn", {"replicas": 2})
    await rig.ready("fn", 2)
    stopped, other = rig.instances("fn")
    pid, other_pid = stopped.runner.pid, other.runner.pid
    with patch.object(supervised_instance, "_SILENCE_S", math.inf):  # or it is replaced
        stop_process(pid)
        try:
            stop_process(other_pid)
            try:
                calls = [await begun(rig, "") for _ in range(8)]
            finally:
                os.kill(other_pid, signal.SIGCONT)
            await wait_until_async(lambda: sum(call.done() for call in calls) == 4)
            with patch.object(supervised_instance, "_PROBE_TIMEOUT_S", 0.5):
                stopped.suspect()  # as a call does that cannot reach it
                await wait_until_async(lambda: stopped.silent)
                await swept(rig, 0)
                yield calls
        finally:
            os.kill(pid, signal.SIGCONT)


@story(ProcessStage())
async def test_repeatable_calls_of_silent_replica_are_retried(rig: Rig) -> None:
    """Calls of a silent replica are sent to another one if the function allows repetition."""
    await rig.deploy("fn", envVars={"repeatable": "1"})
    async with a_silent_replica(rig) as calls:
        assert [200] * 8 == [answer.status for answer in await asyncio.gather(*calls)]


@pytest.mark.slow
@story(ProcessStage())
async def test_other_calls_of_silent_replica_are_not_retried(rig: Rig) -> None:
    """Calls of other functions are not repeated and wait for their time limit."""
    await rig.deploy("fn")
    async with a_silent_replica(rig) as calls:
        assert 4 == sum(call.done() for call in calls)
        await swept(rig, LIMIT_S)
        statuses = [answer.status for answer in await asyncio.gather(*calls)]
        assert (4, 4) == (statuses.count(200), statuses.count(504))


@pytest.mark.slow
@story(ProcessStage())
async def test_ending_replica_keeps_its_calls(rig: Rig) -> None:
    """A replica that is ending refuses probes and keeps its calls."""
    await rig.deploy("fn", envVars={"repeatable": "1"})
    call = await begun(rig, "/hang")
    await rig.printed("fn", "hanging")
    (instance,) = rig.instances("fn")
    os.kill(instance.runner.pid, signal.SIGTERM)
    await wait_until_async(lambda: instance._silence.probes > supervised_instance._SILENT_PROBES)
    await swept(rig, 0)
    assert not instance.silent
    assert {"hanging"} == {"hanging", "the client left"} & set(await rig.logs("fn"))
    call.cancel()


@story(ProcessStage())
async def test_call_is_taken_from_at_most_one_silent_replica(rig: Rig) -> None:
    """A call is taken from only one silent replica, as it may be what silences them."""
    await rig.deploy("fn", envVars={"repeatable": "1"})
    call = await begun(rig, "/hang")
    await rig.printed("fn", "hanging")
    for _ in range(3):
        with patch.object(supervised_instance.SupervisedInstance, "silent", new=True):
            await swept(rig, 0)
        await rig.printed("fn", "hanging", 2)  # it was taken, and is with the replica once more
    await swept(rig, LIMIT_S)
    assert 504 == (await call).status
    await rig.printed("fn", "the client left", 2)
    assert 2 == (await rig.logs("fn")).count("hanging")
