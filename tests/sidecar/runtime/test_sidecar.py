"""The whole sidecar as a real process with real sockets and a scripted handler."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.sidecar.runtime.conftest import EXPLAIN, ROOT
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from tests.gate import Gate
    from tests.sidecar.runtime.conftest import Start


def test_requests_with_different_paths_or_types_never_share_batch(
    sidecar: Start, gate: Gate
) -> None:
    """Requests with different paths or content types never share a batch."""

    async def run() -> None:
        async with sidecar() as running:
            json_type = ("content-type", "application/json")
            responses = await running.together(
                gate,
                running.ask("a", EXPLAIN, target="/x"),
                running.ask("b", EXPLAIN, target="/y"),
                running.ask("c", EXPLAIN, json_type, target="/x"),
                running.ask("d", EXPLAIN, target="/x"),
            )
            assert [b"2", b"1", b"1", b"2"] == [r.header(b"x-carpool-batch") for r in responses]

    asyncio.run(run())


def test_request_past_its_objective_gets_504_and_is_not_sent(sidecar: Start, gate: Gate) -> None:
    """A request that waits longer than its objective gets 504 and is never sent."""

    async def run() -> None:
        async with sidecar(carpool_slo="60s", carpool_batch_max="1") as running:
            busy = asyncio.create_task(running.ask(gate.word))
            await running.until_metric("batch_in_flight", 1)
            late = await running.ask("crash", ("x-timeout", "100ms"))
            assert 504 == late.status
            spent = ("x-start-time", str(time.time_ns() - 120 * 10**9))
            assert 504 == (await running.ask("crash", spent)).status
            assert not busy.done()
            gate.open()
            assert 200 == (await busy).status
            assert 200 == (await running.ask("next")).status
            assert 400 == (await running.ask("x", ("x-timeout", "soon"))).status

    asyncio.run(run())


def test_a_policy_may_be_a_file_in_the_functions_folder(sidecar: Start, tmp_path: Path) -> None:
    """A policy file in the function's folder is found without PYTHONPATH, as in an image."""
    (tmp_path / "pairs_beside.py").write_text(
        "from sidecar.policies.fixed import FixedWindow\n\n\nclass Pairs(FixedWindow):\n    pass\n"
    )

    async def run() -> None:
        policy = {"carpool_batch_policy": "pairs_beside:Pairs", "function_dir": str(tmp_path)}
        async with sidecar(**policy, carpool_batch_params='{"size": 2, "wait_s": 60}') as running:
            answers = await asyncio.gather(running.ask("a"), running.ask("b"))
            assert [200, 200] == [answer.status for answer in answers]

    asyncio.run(run())


def test_cancelled_request_is_counted_and_never_sent(sidecar: Start, gate: Gate) -> None:
    """A cancelled request is counted and never sent."""

    async def run() -> None:
        async with sidecar(carpool_batch_max="1") as running:
            busy = asyncio.create_task(running.ask(gate.word))
            await running.until_metric("batch_in_flight", 1)
            leaver = asyncio.create_task(running.ask("crash"))
            await running.until_metric("batch_queue_requests", 1)
            leaver.cancel()
            await running.until_metric('batch_requests_total{state="cancelled"}', 1)
            gate.open()
            assert 200 == (await busy).status
            assert 200 == (await running.ask("next")).status

    asyncio.run(run())


def test_full_queue_refuses_with_429_and_retry_after(sidecar: Start, gate: Gate) -> None:
    """A full queue refuses at once with 429 and Retry-After."""

    async def run() -> None:
        async with sidecar(carpool_batch_max="1", carpool_queue_max="1") as running:
            busy = asyncio.create_task(running.ask(gate.word))
            await running.until_metric("batch_in_flight", 1)
            queued = asyncio.create_task(running.ask("queued"))
            await running.until_metric("batch_queue_requests", 1)
            refused = await running.ask("one too many")
            assert 429 == refused.status
            assert int(refused.header(b"retry-after") or 0) >= 1
            gate.open()
            assert (200, 200) == ((await busy).status, (await queued).status)

    asyncio.run(run())


@pytest.mark.slow
def test_killed_handler_recovers_under_load(sidecar: Start) -> None:
    """When handlers are killed under load, every request is answered and all are soon 200 again."""

    async def run() -> None:
        async with sidecar(carpool_slo="60s") as running:
            statuses: list[int] = []
            stop = asyncio.Event()

            async def caller() -> None:
                while not stop.is_set():
                    statuses.append((await running.ask("slow:0.002")).status)

            callers = [asyncio.create_task(caller()) for _ in range(20)]
            for _ in range(3):
                done = len(statuses)
                await wait_until_async(lambda done=done: len(statuses) > done + 50)  # type: ignore[misc]
                os.kill(running.handler_pid(), signal.SIGKILL)
            done = len(statuses)
            await wait_until_async(lambda: len(statuses) > done + 200)
            stop.set()
            await asyncio.gather(*callers)
            assert set(statuses) <= {200, 502}
            assert {200} == set(statuses[-50:])
            assert statuses.count(502) <= 3 * 20

    asyncio.run(run())


def test_sigterm_loses_no_request(sidecar: Start) -> None:
    """After SIGTERM partial batches leave at once, all accepted requests are answered, exit 0."""

    async def run() -> None:
        policy: dict[str, Any] = {"carpool_batch_policy": "fixed", "carpool_batch_wait": "1h"}
        async with sidecar(carpool_batch_max="8", **policy) as running:
            asked = [asyncio.create_task(running.ask(f"slow:0.0{i % 9}1")) for i in range(20)]
            await running.until_metric('batch_requests_total{state="done"}', 16)
            await running.until_metric("batch_queue_requests", 4)
            running.process.send_signal(signal.SIGTERM)
            responses = await asyncio.wait_for(asyncio.gather(*asked), HANG_S)
            assert {200} == {response.status for response in responses}
            await wait_until_async(lambda: running.process.poll() is not None)
            assert 0 == running.process.returncode

    asyncio.run(run())


def test_no_handler_outlives_its_sidecar(sidecar: Start) -> None:
    """A killed sidecar leaves no handler behind."""

    async def run() -> None:
        async with sidecar() as running:
            handler = running.handler_pid()
            running.process.kill()
            await wait_until_async(lambda: not alive(handler), what="the handler's end")

    asyncio.run(run())


def test_options_are_answered_without_the_handler(sidecar: Start) -> None:
    """The sidecar answers OPTIONS itself, as a model does not know methods."""

    async def run() -> None:
        async with sidecar() as running:
            answer = await running.pool.request("OPTIONS", "/", (), b"status:500", HANG_S)
            assert 204 == answer.status
            assert b"POST" in (answer.header(b"allow") or b"")

    asyncio.run(run())


def test_sidecar_in_its_normal_path_loads_nothing_that_it_may_not_need(
    sidecar: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What a scaler, merging, the admin API or an error needs is not loaded at the start."""
    (tmp_path / "handler.py").write_text("def handle_batch(items): return [b'ok'] * len(items)")

    async def run() -> None:
        async with sidecar(
            carpool_slo="1s",
            fprocess=f"{sys.executable} -m watchdog_plugin",
            function_dir=str(tmp_path),
            PYTHONPROFILEIMPORTTIME="1",  # of the handler, too
        ) as running:
            assert 200 == (await running.ask("1")).status

    asyncio.run(run())
    loaded = set(re.findall(r"^import time:.*\| +(\S+)$", capfd.readouterr().err, re.MULTILINE))
    assert {"sidecar.serving", "watchdog_plugin.app", "asyncio", "uvloop"} <= loaded
    assert set() == loaded & {
        *("argparse", "difflib", "email", "http.client", "http.server", "importlib.metadata"),
        *("msgspec", "multiprocessing", "numpy", "onnxruntime", "prometheus_client", "yaml"),
        *("carpool.plan", "carpool.sync", "sidecar.runtime.admin", "sidecar.runtime.merging.oip"),
    }


def test_bad_settings_are_all_named_at_once() -> None:
    """All bad settings are listed at once with the nearest known names, and the exit code is 2."""
    bad = {
        "carpool_slo": "soon",
        "carpool_batch_mx": "4",
        "sidecar_lisen": "x",
        "fprocess": "true",
    }
    result = subprocess.run(
        [sys.executable, "-m", "sidecar"],
        cwd=ROOT,
        env={**os.environ, **bad},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert 2 == result.returncode
    assert "carpool_slo = 'soon'" in result.stderr
    assert "carpool_batch_max" in result.stderr
    assert "sidecar_listen" in result.stderr


def alive(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_failing_policy_is_replaced_and_counted(sidecar: Start, tmp_path: Path) -> None:
    """When a third-party policy raises, requests continue and the fallback is counted."""
    (tmp_path / "odd.py").write_text(
        "from sidecar.policies.none import NoBatching\n"
        "class Odd(NoBatching):\n"
        "    def decide(self, waiting):\n"
        "        raise RuntimeError('no idea')\n"
    )

    async def run() -> None:
        path = f"{ROOT}:{tmp_path}"
        async with sidecar(PYTHONPATH=path, carpool_batch_policy="odd:Odd") as running:
            assert [200] * 3 == [(await running.ask("x")).status for _ in range(3)]
            assert 1 == await running.metric("batch_policy_fallback_total")

    asyncio.run(run())


def test_function_slower_than_its_objective_is_logged_once_and_exported(
    sidecar: Start, capfd: pytest.CaptureFixture[str]
) -> None:
    """The log names the objective; requests of class ``batch`` have no deadline to miss."""

    async def run() -> None:
        async with sidecar(carpool_slo="1us") as running:
            for _ in range(12):
                assert 200 == (await running.ask("x", ("x-carpool-class", "batch"))).status
            assert 0 < await running.metric("batch_exceeding_objective_seconds")

    asyncio.run(run())
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "expected more" in line]
    assert "com.carpool.slo = '1us': expected more than" in line
