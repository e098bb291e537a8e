"""Without an instance, a front holds requests beyond the objective up to their own timeouts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.sidecar.runtime.conftest import on_loop
from tests.sidecar.runtime.test_sync import plan, scaler, sidecar, version_of
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gate import Gate
    from tests.sidecar.runtime.test_sync import Scaler

SHORT = "30ms"  # much less than a process takes to start


def ended(scripted: Scaler) -> dict[str, int]:
    """Return the number of ended requests by state, summed over all reports."""
    total: dict[str, int] = {}
    for report in scripted.reports:
        for state, count in report.outcomes.items():
            total[state] = total.get(state, 0) + count
    return total


@on_loop
async def test_requests_held_during_cold_start_are_not_refused(tmp_path: Path) -> None:
    """Requests held during a cold start are answered and count as late, or expire at X-Timeout."""
    async with scaler(tmp_path) as (scripted, _), sidecar(tmp_path, "f", carpool_slo=SHORT) as f:
        held = [asyncio.ensure_future(f.ask("ok")) for _ in range(3)]
        impatient = await f.ask("ok", ("x-timeout", "150ms"))
        assert (504, True) == (impatient.status, b"deadline passed" in impatient.body)
        async with sidecar(tmp_path, "one", sidecar_class="big"):
            patient = [asyncio.ensure_future(f.ask("ok", ("x-timeout", "30s"))) for _ in range(2)]
            await wait_until_async(lambda: scripted.ready["big"], what="an announcement")
            scripted.order(plan(3), "e:1")
            assert [200] * 5 == [(await each).status for each in (*held, *patient)]
            expected = {"done": 5, "expired": 1, "late": 5}
            await wait_until_async(lambda: expected == ended(scripted), what="what became of them")


@pytest.mark.slow
@on_loop
async def test_waiting_requests_are_held_when_last_instance_goes(
    tmp_path: Path, gate: Gate
) -> None:
    """Waiting requests are held when the last instance goes; with one up, objectives hold."""
    async with scaler(tmp_path) as (scripted, _), sidecar(tmp_path, "f", carpool_slo="1s") as f:
        async with sidecar(tmp_path, "one", sidecar_class="big") as one:
            await wait_until_async(lambda: scripted.ready["big"], what="an announcement")
            scripted.order(plan(1, batch=1), "e:1")
            await wait_until_async(lambda: version_of(scripted) == 1, what="followed")
            busy = asyncio.ensure_future(f.ask(gate.word))
            await f.until_metric("batch_in_flight", 1)
            expired = asyncio.ensure_future(f.ask("ok"))
            assert 504 == (await expired).status
            waiting = asyncio.ensure_future(f.ask("ok"))
            await f.until_metric("batch_queue_requests", 1)
            one.process.kill()
            assert 504 == (await busy).status  # it had run, and for longer than it may
        scripted.said.clear()
        async with sidecar(tmp_path, "two", sidecar_class="big"):
            await wait_until_async(lambda: scripted.ready["big"], what="an announcement")
            scripted.order(plan(2, batch=1), "e:2")
            assert 200 == (await waiting).status
