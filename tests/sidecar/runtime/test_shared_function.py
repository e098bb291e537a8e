"""Three applications with different objectives on one function, each with its own longest wait.

The plan is the one that the policy `harmonybatch` makes for a scenario in the examples: the
urgent application has its own instances, the others share batches on another class. The sidecar
and its two handlers are real processes; the header ``X-Carpool-App`` names an application.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from scaler.control.guard import Guard
from scaler.plan_command import snapshot_of
from scaler.policy_choice import chosen_policy
from scaler.scenarios.scenario_file import read_scenario
from tests.sidecar.runtime.conftest import ROOT, AdminClient, on_loop

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from carpool.http.client import Response
    from carpool.plan import Plan
    from tests.sidecar.runtime.conftest import Handlers, Sidecar

    Start = Callable[..., AbstractAsyncContextManager[Sidecar]]

LATE_S = 0.15  # what a busy machine may add
SLOS = {"search": "500ms", "upload": "800ms", "archive": "1s"}
APPS = json.dumps([{"name": name, "slo": slo} for name, slo in SLOS.items()])


@pytest.fixture
def plan() -> Plan:
    """Return a plan with one class for ``search`` and one for ``upload`` and ``archive``."""
    scenario = read_scenario(ROOT / "examples/scenarios/tagging.yaml")
    policy = chosen_policy("harmonybatch", scenario.policies)
    planning = Guard(policy).plan(snapshot_of(scenario))
    return planning.plans["tag"]


def windows(plan: Plan) -> dict[str, float]:
    """Return the longest wait of each application."""
    return {route.app: route.max_wait_s for route in plan.routes}


async def ask(running: Sidecar, app: str, body: str = "x") -> Response:
    """Send one request of an application."""
    return await running.ask(body, ("x-carpool-app", app), ("x-carpool-explain", "1"))


async def waits(admin: AdminClient, batches: int) -> list[dict[str, float]]:
    """Return the waits by application in the last batches, oldest batch first."""
    entries: list[dict[str, Any]] = await admin.get(f"/v1/batches?limit={batches}")
    return [{r["app"]: r["wait_s"] for r in entry["requests"]} for entry in reversed(entries)]


@pytest.mark.timing
@on_loop
async def test_shared_batch_is_sent_at_earliest_window_of_its_applications(
    sidecar: Start, handler: Handlers, tmp_path: Path, plan: Plan
) -> None:
    """Alone, each waits its own time; together until ``min(a_i + T_i)``; full batches do not."""
    alone_in_it, several = sorted(plan.classes, key=lambda each: each.batch_size)
    own, shared, size = alone_in_it.name, several.name, several.batch_size
    window_s = windows(plan)
    assert 0 == window_s["search"] < 0.3 < window_s["upload"] < window_s["archive"]
    first, second = handler("own"), handler("shared")
    admin = AdminClient(f"unix:{tmp_path}/admin.sock")
    env = {"carpool_apps": APPS, "carpool_slo": "5s", "sidecar_admin": admin.pool.address}
    async with sidecar(sidecar_upstreams=first, **env) as running:
        places = {own: [first], shared: [second]}
        assert 200 == (await admin.put(plan.to_dict(), **places)).status

        for app in ("search", "upload", "archive"):
            assert 200 == (await ask(running, app)).status
            (alone,) = await waits(admin, 1)
            assert window_s[app] - 0.01 <= alone[app] <= window_s[app] + LATE_S

        archive = asyncio.create_task(ask(running, "archive"))
        await asyncio.sleep(0.1)
        upload, search = await asyncio.gather(ask(running, "upload"), ask(running, "search"))
        answers = [await archive, upload, search]
        assert [b"2", b"2", b"1"] == [a.header(b"x-carpool-batch") for a in answers]
        hurried, together = await waits(admin, 2)
        assert hurried["search"] <= LATE_S
        assert window_s["upload"] - 0.01 <= together["upload"] <= window_s["upload"] + LATE_S
        assert 0.05 <= together["archive"] - together["upload"] <= 0.1 + LATE_S

        requests = [ask(running, ("upload", "archive")[n % 2], f"{n}") for n in range(size)]
        answers = await asyncio.gather(*requests)
        assert [f"{n}".encode() for n in range(size)] == [answer.body for answer in answers]
        (full,) = await admin.get("/v1/batches?limit=1")
        assert ("full", size, shared) == (full["closed"], full["items"], full["instance_class"])
        assert full["wait_s"] <= LATE_S
