"""Tests of ``/function/NAME``: what reaches the function, and what reaches the client."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from carpool.errors import NotFound, Overloaded
from carpool.http.exchange import Exchange
from faas_stack.provider.bundled_call import BundledCall
from faas_stack.provider.call import Call
from tests.faas_stack.rig import IMAGE, ProcessStage, story
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from carpool.http.client import Response
    from tests.faas_stack.rig import Rig


def seen(answer: Response) -> dict[str, Any]:
    """Return the request as the function saw it, with the last value of each header."""
    assert 200 == answer.status, answer.body
    document: dict[str, Any] = json.loads(answer.body)
    document["headers"] = dict(document["headers"])
    return document


@story()
async def test_path_query_method_and_body_reach_the_function(rig: Rig) -> None:
    """The function gets the rest of the path after its name unchanged."""
    await rig.deploy("fn")
    cases = {
        "/function/fn": "/",
        "/function/fn/": "/",
        "/function/fn?a=1": "/?a=1",
        "/function/fn/a/b%2Fc%20d?x=%20&y": "/a/b%2Fc%20d?x=%20&y",
        "/function/fn.openfaas-fn/a": "/a",
        "/function/fn//double": "//double",
    }
    for path, target in cases.items():
        assert target == seen(await rig.call("GET", path))["target"]
    for method in ("POST", "PUT", "PATCH", "DELETE", "GET", "OPTIONS"):
        document = seen(await rig.call(method, "/function/fn", b"\x00body\xff"))
        assert (method, "\x00body\xff") == (document["method"], document["body"])
    head = await rig.call("HEAD", "/function/fn")
    assert (200, b"") == (head.status, head.body)
    answer = await rig.call("TRACE", "/function/fn")
    assert 405 == answer.status


@story()
async def test_calls_leave_no_reference_cycles(rig: Rig) -> None:
    """Calls leave no reference cycles, which would stay in memory until the collector runs."""
    await rig.deploy("fn")
    await rig.call("GET", "/function/fn")
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            assert 200 == (await rig.call("POST", "/function/fn", b"x")).status
        kinds = (BundledCall, Call, Exchange)
        assert [] == [thing for thing in gc.get_objects() if isinstance(thing, kinds)]
    finally:
        gc.enable()


@story()
async def test_request_headers(rig: Rig) -> None:
    """Hop-by-hop headers are removed, forwarding and tracing headers are added, and others kept."""
    await rig.deploy("fn")
    sent = [
        ("host", "example.org"),
        ("x-own", "kept"),
        ("connection", "keep-alive, X-Hop, X-Call-Id, X-Start-Time"),
        ("x-hop", "dropped"),
        ("x-call-id", "replaced"),
        ("x-start-time", "1"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),  # codespell:ignore te
        ("upgrade", "h2c"),
        ("proxy-authorization", "x"),
        ("authorization", "Bearer mine"),
        ("x-timeout", "0s"),
    ]
    headers = seen(await rig.call("GET", "/function/fn", headers=sent))["headers"]
    assert ("kept", "Bearer mine") == (headers["x-own"], headers["authorization"])
    added = {"x-call-id", "x-start-time"}
    gone = {name for name, _ in sent} - {"host", "x-own", "connection", "authorization"} - added
    assert set() == gone & set(headers)
    assert "example.org" == headers["x-forwarded-host"]
    assert re.fullmatch(r"127\.0\.0\.1:\d+", headers["x-forwarded-for"])
    assert re.fullmatch(r"[0-9a-f-]{36}", headers["x-call-id"])
    assert re.fullmatch(r"\d{19}", headers["x-start-time"])


@story()
async def test_gateway_headers_are_forwarded_unchanged(rig: Rig) -> None:
    """Headers added by a gateway are forwarded unchanged and not repeated to the client."""
    await rig.deploy("fn")
    sent = [
        ("x-forwarded-host", "h"),
        ("x-forwarded-for", "f"),
        ("x-call-id", "c"),
        ("x-start-time", "1"),
        ("x-timeout", "5s"),
    ]
    answer = await rig.call("GET", "/function/fn", headers=sent)
    headers = seen(answer)["headers"]
    assert sent == [(name, headers[name]) for name, _ in sent]
    assert (None, None) == (answer.header(b"x-call-id"), answer.header(b"x-start-time"))


@story(ProcessStage())
async def test_upgrade_request_of_caller_is_not_forwarded(rig: Rig) -> None:
    """A caller's upgrade at ``/_/calls`` is not forwarded, as only the provider may request it."""
    await rig.deploy("fn")
    asked = [("connection", "upgrade"), ("upgrade", "carpool-calls")]
    answer = await rig.call("GET", "/function/fn/_/calls", headers=asked)
    assert 426 == answer.status
    assert b"carpool-calls" in answer.body


@pytest.mark.parametrize("travel", ["together", "alone"])
def test_calls_share_a_connection_if_replica_allows_it(travel: str, tmp_path: Path) -> None:
    """Calls share a connection if the replica allows it, with the same responses as otherwise."""

    @story(ProcessStage(alone=travel == "alone"))
    async def scene(rig: Rig) -> None:
        await rig.deploy("fn")
        (replica,) = rig.function("fn").running
        calls = [rig.call("POST", f"/function/fn/{n}", f"{n}".encode()) for n in range(20)]
        for number, answer in enumerate(await asyncio.gather(*calls)):
            document = seen(answer)
            assert (f"/{number}", f"{number}") == (document["target"], document["body"])
        shared = len(replica.calls._connections) if replica.calls else 0
        own = len(replica.pool._idle)  # fewer than calls where a call came after another's answer
        expected = (1, False) if travel == "together" else (0, True)
        assert expected == (shared, own > 0)

    scene(tmp_path)


@story()
async def test_status_and_headers_are_returned_unchanged(rig: Rig) -> None:
    """Status and headers are returned unchanged, and redirects are not followed."""
    await rig.deploy("fn")
    sent = [("content-type", "text/x-mine")]
    answer = await rig.call("GET", "/function/fn/plain", headers=sent)
    names = (b"location", b"x-own", b"content-type")
    assert (301, b"moved") == (answer.status, answer.body)
    assert [b"/elsewhere", b"1", b"text/x-mine"] == [answer.header(name) for name in names]
    assert b"text/plain" == (await rig.call("GET", "/function/fn/plain")).header(b"content-type")
    call_id = seen(plain := await rig.call("GET", "/function/fn"))["headers"]["x-call-id"]
    assert call_id.encode() == plain.header(b"x-call-id")
    assert 1 == [name for name, _ in plain.headers].count(b"date")


@story()
async def test_nonpositive_x_timeout_is_removed(rig: Rig) -> None:
    """Time limits of zero or below are removed; others, valid or not, are forwarded."""
    await rig.deploy("fn")
    for value, passes in {"-1s": False, "0": False, "0ms": False, "1ms": True, "x": True}.items():
        headers = [("x-timeout", value)]
        document = seen(await rig.call("GET", "/function/fn", headers=headers))
        assert passes == ("x-timeout" in document["headers"]), value


@story()
async def test_unknown_function(rig: Rig) -> None:
    """A call of an unknown function is a 503 that does not name other functions."""
    await rig.deploy("classify")
    answer = await rig.call("GET", "/function/classifi")
    assert (503, b"proxy") == (answer.status, answer.header(b"x-openfaas-internal"))
    assert "no function 'classifi'" in answer.body.decode()
    assert b"'classify'" not in answer.body
    long = await rig.call("GET", f"/function/{'c' * 50_000}")
    assert (503, True) == (long.status, len(long.body) < 1000)
    assert 400 == (await rig.call("GET", "/function/")).status
    assert 503 == (await rig.call("GET", "/function/classify.other")).status


@story()
async def test_chunked_request(rig: Rig) -> None:
    """A body without a length, as the gateway sends it, arrives complete."""
    await rig.deploy("fn")
    host, _, port = rig.provider.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /function/fn/x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"
        b"Connection: close\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    answer = await reader.read()
    writer.close()
    assert b" 200 OK" in answer
    assert "abcde" == json.loads(answer.partition(b"\r\n\r\n")[2])["body"]


@story()
async def test_client_disconnect_cancels_call(rig: Rig) -> None:
    """When a client disconnects, its call is cancelled at the function and released."""
    await rig.deploy("fn")
    call = asyncio.ensure_future(rig.call("GET", "/function/fn/hang"))
    replica = rig.function("fn").running[0]
    await rig.printed("fn", "hanging")
    assert 1 == replica.in_flight
    call.cancel()
    await wait_until_async(lambda: replica.in_flight == 0)
    await rig.printed("fn", "the client left")
    counted = 'code="499",method="GET",path="/function/{name}"'
    async with asyncio.timeout(HANG_S):  # the replica is released before the call is counted
        while counted not in (await rig.call("GET", "/metrics")).body.decode():
            pass


@story()
async def test_events_are_forwarded_as_they_arrive(rig: Rig) -> None:
    """An event stream is forwarded event by event."""
    await rig.deploy("fn")
    headers = [("accept", "text/event-stream")]
    async with rig.client.stream("GET", "/function/fn/events", headers) as answer:
        assert (200, (b"content-type", b"text/event-stream")) == (
            answer.status,
            next(pair for pair in answer.headers if pair[0] == b"content-type"),
        )
        chunks = answer.chunks()
        assert b"data: 1\n\n" == await anext(chunks)
        await rig.call("POST", "/function/fn/last-event")
        assert [b"data: 2\n\n"] == [chunk async for chunk in chunks]


@story()
async def test_call_of_dying_replica_is_502(rig: Rig) -> None:
    """A call whose replica dies is a 502 with the reason, and the next call succeeds."""
    await rig.deploy("fn")
    answer = await rig.call("GET", "/function/fn/break")
    assert (502, b"proxy") == (answer.status, answer.header(b"x-openfaas-internal"))
    assert "closed the connection before it answered" in answer.body.decode()
    seen(await rig.call("GET", "/function/fn"))


@pytest.mark.parametrize(("repeatable", "times"), [("1", 2), ("", 1)])
def test_call_on_closed_reused_connection_is_retried(
    repeatable: str, times: int, tmp_path: Path
) -> None:
    """A call on a reused connection that closes is sent again if its function may see it twice.

    It may have been sent after the replica had closed the connection.
    """

    @story(ProcessStage())
    async def scene(rig: Rig) -> None:
        await rig.deploy("fn", envVars={"repeatable": repeatable})
        seen(await rig.call("GET", "/function/fn"))
        answer = await rig.call("POST", "/function/fn/close")
        assert (502, b"proxy") == (answer.status, answer.header(b"x-openfaas-internal"))
        assert "closed the connection before it answered" in answer.body.decode()
        assert times == (await rig.logs("fn")).count("closing")

    scene(tmp_path)


@story(ProcessStage())
async def test_draining_provider_completes_partly_received_call(rig: Rig) -> None:
    """A draining provider also answers a call of which only the head has arrived."""
    await rig.deploy("fn")
    host, _, port = rig.provider.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /function/fn HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\n")
    await rig.call("GET", "/healthz")  # the head has come before this
    draining = asyncio.ensure_future(rig.provider.drain())
    await wait_until_async(lambda: rig.provider._servers[0].closing)
    writer.write(b"x")
    answer = await reader.read()
    writer.close()
    await draining
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close\r\n" in answer
    assert "x" == json.loads(answer.partition(b"\r\n\r\n")[2])["body"]


@pytest.mark.slow
@story()
async def test_every_call_gets_a_response_while_replicas_are_killed(rig: Rig) -> None:
    """Under load, killing a replica costs at most its in-flight calls, and all get a response."""
    await rig.deploy("fn")
    await rig.call("POST", "/system/scale-function/fn", {"replicas": 2})
    await rig.ready("fn", 2)
    statuses: list[int] = []

    async def once() -> None:
        statuses.append((await rig.call("GET", "/function/fn/slow?s=0.01")).status)

    async def caller() -> None:
        for _ in range(60):
            await once()

    calls = asyncio.gather(*(caller() for _ in range(8)))
    for _ in range(3):
        reached = len(statuses) + 60
        await wait_until_async(lambda reached=reached: len(statuses) >= reached)  # type: ignore[misc]
        await wait_until_async(lambda: rig.function("fn").available > 0)
        victim = next(instance for instance in rig.instances("fn") if instance.ready)
        await victim.runner.kill()
    await calls
    assert 480 == len(statuses)
    assert {200, 502} >= set(statuses)
    assert statuses.count(502) <= 3 * 8


@story()
async def test_call_of_function_at_zero_starts_replica(rig: Rig) -> None:
    """A call of a function at zero starts a replica, and its time starts when that is ready."""
    labels = {"com.carpool.scale.min": "0"}
    await rig.deploy("fn", ready=False, labels=labels, envVars={"ready_after": "0.3"})
    began_ns = time.time_ns()
    answers = await asyncio.gather(*(rig.call("GET", "/function/fn") for _ in range(20)))
    for answer in answers:
        started_ns = int(seen(answer)["headers"]["x-start-time"])
        assert began_ns + 0.3e9 < started_ns < time.time_ns()
        assert str(started_ns).encode() == answer.header(b"x-start-time")
    assert (1, 1) == (rig.function("fn").replicas, rig.function("fn").available)


@story()
async def test_waiting_call_starts_replica_again_if_function_is_scaled_to_zero(rig: Rig) -> None:
    """A scale to zero before a replica is ready does not leave the waiting calls without one."""
    labels = {"com.carpool.scale.min": "0"}
    await rig.deploy("fn", ready=False, labels=labels, envVars={"ready_after": "0.3"})
    call = asyncio.ensure_future(rig.call("GET", "/function/fn"))
    await wait_until_async(lambda: bool(rig.function("fn").running), what="a replica")
    await rig.call("POST", "/system/scale-function/fn", {"replicas": 0})
    assert 200 == (await call).status
    assert 1 == rig.function("fn").replicas


@story(patience_s=0.3)
async def test_call_that_waits_too_long_is_503(rig: Rig) -> None:
    """A call of a function that does not become ready ends with a 503 and the reason."""
    await rig.deploy("fn", ready=False, envVars={"ready_after": "60"})
    await wait_until_async(lambda: rig.instances("fn")[0].reason)
    answer = await rig.call("GET", "/function/fn")
    assert (503, b"proxy") == (answer.status, answer.header(b"x-openfaas-internal"))
    assert b"1" == answer.header(b"retry-after")
    assert "no ready replica after 0.3 s: loading" in answer.body.decode()


@pytest.mark.slow
@story(patience_s=0.3)
async def test_cancelled_calls_do_not_count_towards_limit(rig: Rig) -> None:
    """Cancelled calls do not count towards the limit of waiting calls."""
    await rig.deploy("fn", ready=False, envVars={"ready_after": "60"})
    function = rig.function("fn")
    calls = [asyncio.ensure_future(rig.orchestrator.acquire(function)) for _ in range(4096)]
    await asyncio.sleep(0)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    with pytest.raises(Overloaded, match="no ready replica after"):
        await rig.orchestrator.acquire(function)


@pytest.mark.slow
@story()
async def test_call_of_failing_function_is_refused_at_once(rig: Rig) -> None:
    """A call of a function that keeps failing to start is a 503 without a wait."""
    await rig.deploy("fn", ready=False, envVars={"refuse": "1"})
    answer = await rig.call("GET", "/function/fn")
    assert 503 == answer.status
    assert "keeps failing to start" in answer.body.decode()
    await rig.printed("fn", "carpool: ended with status 3")
    lines = await rig.logs("fn")
    assert ["I do not want to start", "carpool: ended with status 3"] == lines[:2]


@pytest.mark.slow
@story()
async def test_least_busy_replica_gets_the_call(rig: Rig) -> None:
    """Calls go to the ready replica with the fewest calls."""
    await rig.deploy("fn")
    await rig.call("POST", "/system/scale-function/fn", {"replicas": 3})
    await rig.ready("fn", 3)
    calls = [asyncio.ensure_future(rig.call("GET", "/function/fn/hang")) for _ in range(9)]
    replicas = rig.function("fn").running
    await wait_until_async(lambda: sum(replica.in_flight for replica in replicas) == 9)
    assert [3, 3, 3] == [replica.in_flight for replica in replicas]
    for call in calls:
        call.cancel()


async def _under_load(rig: Rig, change: Callable[[], Awaitable[None]]) -> None:
    """Check that all calls of two replicas succeed during a change."""
    await rig.deploy("fn")
    await rig.call("POST", "/system/scale-function/fn", {"replicas": 2})
    await rig.ready("fn", 2)
    statuses: list[int] = []
    stop = asyncio.Event()

    async def caller() -> None:
        while not stop.is_set():
            statuses.append((await rig.call("GET", "/function/fn/slow?s=0.02")).status)

    calls = asyncio.gather(*(caller() for _ in range(6)))
    await wait_until_async(lambda: len(statuses) > 20)
    await change()
    stop.set()
    await calls
    assert {200} == set(statuses)


@pytest.mark.slow
@story()
async def test_no_call_fails_during_an_update(rig: Rig) -> None:
    """No call fails during a rolling update."""

    async def update() -> None:
        function = rig.function("fn")
        before = {instance.name for instance in rig.instances("fn")}
        document = {"service": "fn", "image": IMAGE, "envVars": {"ready_after": "0.2"}}
        assert 202 == (await rig.call("PUT", "/system/functions", document)).status
        await wait_until_async(
            lambda: (
                len(function.running) == 2
                and not before & {r.instance.name for r in function.running}
            ),
            60,
        )

    await _under_load(rig, update)


@pytest.mark.slow
@story()
async def test_no_call_fails_during_scaling(rig: Rig) -> None:
    """No call fails during scaling up and down."""

    async def scale() -> None:
        for replicas in (1, 3, 1):
            await rig.call("POST", "/system/scale-function/fn", {"replicas": replicas})
            await wait_until_async(
                lambda n=replicas: len(rig.function("fn").running) == n,  # type: ignore[misc]
                60,
            )

    await _under_load(rig, scale)


@pytest.mark.slow
@story()
async def test_old_revision_serves_while_new_one_does_not_start(rig: Rig) -> None:
    """While the new revision does not start, the old one serves calls."""
    await rig.deploy("fn")
    document = {"service": "fn", "image": IMAGE, "envVars": {"refuse": "1"}}
    await rig.call("PUT", "/system/functions", document)
    function = rig.function("fn")
    await wait_until_async(lambda: any(r.instance.failing for r in function.running))
    assert "refuse" not in seen(await rig.call("GET", "/function/fn"))["env"]
    assert 1 == function.available


@story()
async def test_removal_lets_calls_finish(rig: Rig) -> None:
    """A removed function refuses new calls at once and completes those in flight."""
    await rig.deploy("fn")
    call = asyncio.ensure_future(rig.call("GET", "/function/fn/slow?s=0.3"))
    replica = rig.function("fn").running[0]
    await wait_until_async(lambda: replica.in_flight == 1)
    await rig.call("DELETE", "/system/functions", {"functionName": "fn"})
    assert 503 == (await rig.call("GET", "/function/fn")).status
    assert 200 == (await call).status


@pytest.mark.slow
@story()
async def test_call_does_not_restart_removed_function(rig: Rig) -> None:
    """A call that lost its replica does not start a removed function again."""
    await rig.deploy("fn")
    function = rig.function("fn")
    await rig.call("DELETE", "/system/functions", {"functionName": "fn"})
    await wait_until_async(lambda: not function.running, what="the end of the replica")
    with pytest.raises(NotFound, match="'fn' was removed"):
        await rig.orchestrator.acquire(function)
    assert [] == function.running
    await rig.deploy("fn")  # another one of that name
    with pytest.raises(NotFound, match="'fn' was removed"):
        await rig.orchestrator.acquire(function)
