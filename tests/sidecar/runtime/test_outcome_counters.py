"""Request outcomes by application."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from carpool.settings import FunctionSettings
from sidecar.core.request import Request
from sidecar.runtime.ingress import Payload
from sidecar.runtime.outcome_counters import OutcomeCounters

if TYPE_CHECKING:
    from tests.gate import Gate
    from tests.sidecar.runtime.conftest import Sidecar, Start

APPS = json.dumps([{"name": "web", "slo": "100ms"}, {"name": "slow", "slo": "2s"}])
SETTINGS = FunctionSettings.from_labels(
    {"com.carpool.slo.percentile": "0.95"}, {"com.carpool.apps": APPS}
)


def request(app: str, due: float, spent_s: float = 0.0, *, background: bool = False) -> Request:
    """Return a request that arrived at 10 s."""
    payload: Any = Payload(None, b"", "", None, None, spent_s)  # type: ignore[arg-type]
    made = Request(1, "k", 10.0, app=app, payload=payload, background=background)
    made.due = due
    return made


def values(outcomes: OutcomeCounters) -> dict[tuple[str, ...], float]:
    """Return the exported non-zero values by name and labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in outcomes.collect()
        for sample in family.samples
        if sample.value and not sample.name.endswith("_bucket")
    }


def test_response_is_in_time_late_or_failed() -> None:
    """A response is in time, late or failed, with its time counted from the gateway's stamp."""
    outcomes = OutcomeCounters(SETTINGS)
    outcomes.answered(request("web", 10.5, 0.25), 10.5, failed=False)
    outcomes.answered(request("web", 10.5), 10.625, failed=False)
    outcomes.answered(request("slow", 10.5), 11.0, failed=True)
    outcomes.ended("slow", "expired")
    assert {
        ("batch_request_seconds_count", "web"): 2,
        ("batch_request_seconds_sum", "web"): 1.375,
        ("batch_request_seconds_count", "slow"): 1,
        ("batch_request_seconds_sum", "slow"): 1.0,
        ("batch_outcomes_total", "web", "in_time"): 1,
        ("batch_outcomes_total", "web", "late"): 1,
        ("batch_outcomes_total", "slow", "failed"): 1,
        ("batch_outcomes_total", "slow", "expired"): 1,
        ("batch_objective_seconds", "web"): 0.1,
        ("batch_objective_seconds", "slow"): 2.0,
        ("batch_objective_ratio",): 0.95,
    } == values(outcomes)


def test_background_requests_are_counted_apart() -> None:
    """Background requests have their own counters, as they would hide missed objectives."""
    outcomes = OutcomeCounters(SETTINGS)
    before = values(outcomes)
    outcomes.answered(request("web", 1e9, background=True), 70.0, failed=False)
    outcomes.ended("web", "cancelled", background=True)
    assert {
        ("batch_background_seconds_count",): 1,
        ("batch_background_seconds_sum",): 60.0,
        ("batch_background_outcomes_total", "in_time"): 1,
        ("batch_background_outcomes_total", "cancelled"): 1,
    } == dict(values(outcomes).items() - before.items())


@pytest.mark.parametrize("settings", [SETTINGS, None])
def test_unnamed_applications_share_one_series(settings: FunctionSettings | None) -> None:
    """Applications that the settings do not name share one series."""
    outcomes = OutcomeCounters(settings)
    before = len(values(outcomes))
    for n in range(100):
        outcomes.ended(f"made up {n}", "refused")
    assert 100 == values(outcomes)["batch_outcomes_total", "*", "refused"]
    assert before + 1 == len(values(outcomes))


def test_a_sidecar_counts_every_request_once(sidecar: Start, gate: Gate) -> None:
    """In-time, refused, cancelled and background requests are each counted once."""

    async def counted(running: Sidecar, app: str, outcome: str) -> float:
        return await running.metric(f'batch_outcomes_total{{app="{app}",outcome="{outcome}"}}')

    async def run() -> None:
        web = ("x-carpool-app", "web")
        env = {"carpool_apps": APPS, "carpool_batch_policy": "none", "carpool_shed": "off"}
        async with sidecar(**env) as running:
            slow = ("x-carpool-app", "slow")
            assert 200 == (await running.ask("hello", slow)).status
            late = [web, ("x-start-time", str(time.time_ns() - 10**9))]
            expired = await running.ask("hello", *late)
            assert 504 == expired.status
            left = asyncio.create_task(running.ask(gate.word))
            gate.close()
            await running.until_metric("batch_in_flight", 1)
            left.cancel()
            await running.until_metric('batch_requests_total{state="cancelled"}', 1)
            gate.open()
            assert 200 == (await running.ask("hello", slow, ("x-carpool-class", "batch"))).status
            apart = 'batch_background_outcomes_total{outcome="in_time"}'
            assert 1 == await running.metric(apart)
            assert 1 == await counted(running, "slow", "in_time")
            assert 1 == await counted(running, "web", "refused")
            assert 1 == await counted(running, "*", "cancelled")
            assert 1 == await running.metric('batch_request_seconds_count{app="slow"}')

    asyncio.run(run())
