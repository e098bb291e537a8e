"""A sidecar in front of a server without Carpool code: Flask under gunicorn."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.core.batcher import Batcher
from sidecar.options import Options
from sidecar.policies.deadline import Deadline
from sidecar.runtime.handler_launch import plan_launch
from sidecar.runtime.merge_backoff import VAIN_MAX
from sidecar.runtime.merging import protocol_of
from sidecar.runtime.upstreams import FunctionUpstreams
from tests.ports import free_port
from tests.sidecar.runtime.conftest import EXPLAIN
from tests.sidecar.runtime.plain_server import plain_server
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator
    from pathlib import Path

    from carpool.http.client import Response
    from tests.gate import Gate
    from tests.sidecar.runtime.conftest import Sidecar, Start

PREDICT = "/v1/models/m:predict"
JSON_TYPE = ("content-type", "application/json")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Start the server with one worker and return its address."""
    with plain_server("tests.services.flask_model:app", tmp_path) as address:
        yield address


@contextlib.asynccontextmanager
async def merging(sidecar: Start, server: str, **env: str) -> AsyncIterator[Sidecar]:
    """Run a sidecar in front of the server."""
    env = {"carpool_wire": "v1", "sidecar_upstreams": server, **env}
    async with sidecar(**env) as running:
        yield running


async def predict(running: Sidecar, *rows: object, **others: object) -> Response:
    """Send one request with these instances."""
    body = json.dumps({"instances": rows, **others})
    return await running.ask(body, EXPLAIN, JSON_TYPE, target=PREDICT)


async def sizes(running: Sidecar) -> list[int]:
    """Return the number of instances of each request that reached the server."""
    answer = await running.pool.request("GET", "/v1/models/m", timeout_s=HANG_S)
    assert 200 == answer.status
    found: list[int] = json.loads(answer.body)["sizes"]
    return found


def document(answer: Response) -> Any:
    """Return the JSON document of a successful response."""
    assert 200 == answer.status, answer.body
    return json.loads(answer.body)


def test_requests_are_merged_and_response_is_divided(
    sidecar: Start, server: str, gate: Gate
) -> None:
    """Requests are merged into one, and each caller gets its own predictions and common fields."""

    async def run() -> None:
        async with merging(sidecar, server) as running:
            answers = await running.together(
                gate, *(predict(running, *[[n, k] for k in range(n)]) for n in range(1, 6))
            )
            for n, answer in enumerate(answers, start=1):
                expected = [[n, k] * 2 for k in range(n)]
                assert {"predictions": expected, "version": 7} == document(answer)
                assert b"5" == answer.header(b"x-carpool-batch")
            assert [15] == await sizes(running)

    asyncio.run(run())


def test_one_bad_request_fails_alone(sidecar: Start, server: str, gate: Gate) -> None:
    """The bad request gets the server's own error, and all its neighbours are answered.

    When it comes again it is sent alone, at no cost to the others.
    """

    async def run() -> None:
        async with merging(sidecar, server) as running:
            for again in (False, True):
                before = len(await sizes(running))
                rows = [*range(7), "bad", *range(8, 16)]
                answers = await running.together(gate, *(predict(running, row) for row in rows))
                for row, answer in zip(rows, answers, strict=True):
                    if row == "bad":
                        assert 422 == answer.status
                        assert {"error": "1 of 1 rows are bad"} == json.loads(answer.body)
                        assert b"1" == answer.header(b"x-own")
                    else:
                        assert [row * 2] == document(answer)["predictions"]
                sent = (await sizes(running))[before:]
                assert ([1, 15] if again else 16) == (sorted(sent) if again else sent[0])

    asyncio.run(run())


@pytest.mark.slow
def test_requests_that_differ_are_not_merged(sidecar: Start, server: str, gate: Gate) -> None:
    """Requests with another signature or query, or without instances, are not merged."""

    async def run() -> None:
        async with merging(sidecar, server) as running:
            query = running.ask('{"instances": [5]}', JSON_TYPE, target=f"{PREDICT}?a=1")
            answers = await running.together(
                gate,
                predict(running, 1),
                predict(running, 2, signature_name="other"),
                predict(running, 3),
                query,
                running.ask("no JSON", JSON_TYPE, target=PREDICT),
                running.ask("{}", JSON_TYPE, target=PREDICT),
            )
            assert [200, 200, 200, 200] == [answer.status for answer in answers[:4]]
            assert all(answer.status >= 400 for answer in answers[4:])
            assert [1, 1, 2] == sorted(await sizes(running))

    asyncio.run(run())


@pytest.mark.slow
def test_indivisible_response_is_requested_again_in_halves(
    sidecar: Start, server: str, gate: Gate
) -> None:
    """A response that cannot be divided is requested again in halves, down to single requests."""

    async def run() -> None:
        async with merging(sidecar, server) as running:
            answers = await running.together(gate, *(predict(running, r) for r in (1, "short", 3)))
            found = [document(answer)["predictions"] for answer in answers]
            assert [[2], [], [6]] == found

    asyncio.run(run())


def test_sidecar_starts_configured_server(sidecar: Start) -> None:
    """The sidecar starts a server that listens on the port in PORT, as gunicorn does by default."""

    async def run() -> None:
        env = {
            "carpool_wire": "v1",
            "fprocess": f"{sys.executable} -m gunicorn tests.services.flask_model:app",
            "sidecar_handler_port": str(free_port()),
        }
        async with sidecar(**env) as running:
            assert [[2], [4]] == [
                document(await predict(running, n))["predictions"] for n in (1, 2)
            ]

    asyncio.run(run())


def test_servers_on_one_machine_get_separate_ports() -> None:
    """Each server without a watchdog gets a free port, unless its author names one."""
    env = {"fprocess": "gunicorn app:app", "sidecar_watchdog": "off"}
    options = Options.from_env({"sidecar_listen": "127.0.0.1:1", **env})
    launches = [plan_launch(options, env, plain=True) for _ in range(5)]
    assert len({launch.address for launch in launches}) > 1
    for launch in launches:
        assert f"127.0.0.1:{launch.env['PORT']}" == launch.address
    env["sidecar_handler_port"] = "5000"
    assert "127.0.0.1:5000" == plan_launch(options, env, plain=True).address


@pytest.mark.slow
def test_foreign_server_on_function_port_gets_no_requests(sidecar: Start) -> None:
    """A foreign server on the function's port gets no requests, and the error names the port."""
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
            port = str(other.sockets[0].getsockname()[1])
            env = {
                "carpool_wire": "v1",
                "fprocess": f"{sys.executable} -m gunicorn tests.services.flask_model:app",
                "sidecar_handler_port": port,
            }
            async with sidecar(ready=False, **env) as running:
                await wait_until_async(running.listening, what="the sidecar")
                await running.until_metric('batch_restarts_total{reason="died"}', 3)
                refused = await predict(running, 1)
                assert 503 == refused.status
                assert f"port {port} is taken".encode() in refused.body
                other.close()
                assert not asked
                await running.until_ready()
                assert [2] == document(await predict(running, 1))["predictions"]

    asyncio.run(run())


def test_sidecar_is_not_ready_until_server_answers(sidecar: Start, tmp_path: Path) -> None:
    """The sidecar is not ready until the server answers."""

    async def run() -> None:
        late = f"unix:{tmp_path}/server.sock"
        env = {"carpool_wire": "v1", "sidecar_upstreams": late}
        async with sidecar(ready=False, **env) as running:
            await wait_until_async(running.listening, what="the sidecar")
            assert 503 == await running.ready()

            async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 404 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                await writer.drain()
                writer.close()

            async with await asyncio.start_unix_server(answer, late.removeprefix("unix:")):
                await running.until_ready()

    asyncio.run(run())


@pytest.mark.slow
def test_requests_with_different_headers_are_not_merged(
    sidecar: Start, server: str, gate: Gate
) -> None:
    """Requests are merged only if their headers agree; headers of single requests are left out."""

    async def run() -> None:
        async with merging(sidecar, server) as running:
            body = json.dumps({"instances": ["headers"]})
            sent = [
                [("accept", "a/a"), ("x-call-id", "1")],
                [("accept", "a/a"), ("x-call-id", "2")],
                [("accept", "b/b"), ("x-call-id", "3")],
                [("accept", "a/a"), ("x-carpool-app", "x"), ("x-call-id", "4")],
            ]
            answers = await running.together(
                gate, *(running.ask(body, JSON_TYPE, *each, target=PREDICT) for each in sent)
            )
            found = [document(answer)["predictions"][0] for answer in answers]
            expected = [["a/a", "", ""]] * 2 + [["b/b", "", "3"], ["a/a", "x", "4"]]
            assert expected == found
            assert [1, 1, 2] == sorted(await sizes(running))

    asyncio.run(run())


@pytest.mark.slow
def test_requests_are_sent_alone_after_merging_keeps_failing(
    sidecar: Start, server: str, gate: Gate
) -> None:
    """Requests are sent alone after merged ones keep failing, as with NaN predictions."""

    def pair(running: Sidecar) -> list[Coroutine[Any, Any, Response]]:
        return [predict(running, "nan") for _ in range(2)]

    async def run() -> None:
        async with merging(sidecar, server) as running:
            for _ in range(VAIN_MAX):
                before = len(await sizes(running))
                answers = await running.together(gate, *pair(running))
                assert [200, 200] == [answer.status for answer in answers]
                assert [2, 1, 1] == (await sizes(running))[before:]
            before = len(await sizes(running))
            await running.together(gate, *pair(running))
            assert [1, 1] == (await sizes(running))[before:]

    asyncio.run(run())


@pytest.mark.slow
def test_request_with_too_many_instances_is_sent_alone(
    sidecar: Start, server: str, gate: Gate
) -> None:
    """A request with more instances than the maximum batch size is sent alone."""

    async def run() -> None:
        async with merging(sidecar, server, carpool_batch_max="4") as running:
            answers = await running.together(
                gate, *(predict(running, *range(n)) for n in (5, 2, 2, 5))
            )
            expected = [[2 * k for k in range(n)] for n in (5, 2, 2, 5)]
            assert expected == [document(answer)["predictions"] for answer in answers]
            assert [4, 5, 5] == sorted(await sizes(running))

    asyncio.run(run())


def test_post_without_instances_is_not_retried(sidecar: Start, tmp_path: Path) -> None:
    """After a broken connection, a POST is sent again only if it has instances."""
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET / "):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            await writer.drain()
        else:
            seen.append(head.split()[1])
        writer.close()

    async def run() -> None:
        address = f"{tmp_path}/server.sock"
        async with (
            await asyncio.start_unix_server(answer, address),
            merging(sidecar, f"unix:{address}") as running,
        ):
            first = await running.ask("once", target="/effect")
            second = await predict(running, 1)
            assert (502, 502) == (first.status, second.status)
            assert 1 == seen.count(b"/effect")
            assert 1 < seen.count(PREDICT.encode())

    asyncio.run(run())


@pytest.mark.parametrize("wire", ["v1", "oip", "carpool"])
def test_only_carpool_instance_gets_second_batch(wire: str) -> None:
    """Only a Carpool instance gets a second batch; a plain server gets one request at a time."""

    async def run() -> None:
        batcher = Batcher(Deadline(Deadline.Params()), batch_max=4, queue_max=9)
        upstreams = FunctionUpstreams(batcher, 100, protocol_of(wire))
        (instance,) = upstreams.start([f"127.0.0.1:{free_port()}"], 4)
        assert (wire == "carpool") is instance.upstream.pipelines
        upstreams.close()

    asyncio.run(run())
