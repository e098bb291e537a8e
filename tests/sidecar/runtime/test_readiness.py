"""The sidecar's own endpoints, and responses while the function does not start."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from carpool.process.ready_notice import ReadyNotices
from tests.sidecar.runtime.conftest import error
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gate import Gate
    from tests.sidecar.runtime.conftest import Start


def test_function_that_fails_to_start_returns_503_with_output(sidecar: Start) -> None:
    """After some failed starts, callers get 503 with the handler's last output."""

    async def run() -> None:
        async with sidecar(ready=False, start_exit="1") as running:
            await wait_until_async(running.listening)
            response = await running.ask("hello")
            assert 503 == response.status
            assert "model.onnx is not there" in error(response.body)
            assert response.header(b"retry-after")
            assert response.header(b"x-carpool-not-begun")
            assert 503 == await running.ready()
            await running.until_metric('batch_restarts_total{reason="died"}', 3)
            failed = 'batch_outcomes_total{app="*",outcome="failed"}'
            before = await running.metric(failed)
            assert 503 == (await running.ask("hello")).status
            assert before + 1 == await running.metric(failed)

    asyncio.run(run())


def test_a_slow_start_holds_requests(sidecar: Start, gate: Gate) -> None:
    """Until the handler answers, the sidecar is not ready and requests wait."""

    async def run() -> None:
        async with sidecar(ready=False, start_gate=str(gate.path)) as running:
            await wait_until_async(running.listening)
            assert 503 == await running.ready()
            early = asyncio.create_task(running.ask("early"))
            await running.until_metric("batch_queue_requests", 1)
            gate.open()
            assert (200, b"early") == (await early)[::2]
            assert 200 == await running.ready()

    asyncio.run(run())


def test_readiness_response_marks_requests_as_repeatable(sidecar: Start) -> None:
    """The readiness response marks requests as repeatable, so that a proxy may retry elsewhere."""

    async def run() -> None:
        async with sidecar() as running:
            response = await running.pool.request("GET", "/_/ready")
            assert (200, b"true") == (response.status, response.header(b"x-carpool-repeatable"))

    asyncio.run(run())


def test_unknown_carpool_endpoints_are_404(sidecar: Start) -> None:
    """An unknown path under /_/ is a 404 that names a known one, and skips the function."""

    async def run() -> None:
        async with sidecar() as running:
            response = await running.pool.request("GET", "/_/helth")
            assert 404 == response.status
            assert "/_/health" in error(response.body)

    asyncio.run(run())


def test_sidecar_notifies_parent_when_ready(sidecar: Start, gate: Gate, tmp_path: Path) -> None:
    """Once its handler has answered, the sidecar notifies its parent by systemd's protocol."""

    async def run() -> None:
        loop, path = asyncio.get_running_loop(), f"{tmp_path}/notices"
        said = asyncio.Event()
        notices = ReadyNotices(path, said.set, loop)
        told = {"NOTIFY_SOCKET": path, "start_gate": str(gate.path)}
        async with sidecar(ready=False, **told) as running:
            await wait_until_async(running.listening, what="the sidecar")
            assert 503 == await running.ready()
            assert not said.is_set()
            gate.open()
            await wait_until_async(said.is_set, what="the notice")
            assert 200 == await running.ready()
        notices.close()

    asyncio.run(run())
