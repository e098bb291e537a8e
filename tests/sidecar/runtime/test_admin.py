"""The admin API of a real sidecar: plans under load, recent batches and access control."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from carpool.http.client import ConnectionFailed
from tests.ports import free_port
from tests.sidecar.runtime.conftest import ROOT, AdminClient, on_loop
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from tests.gate import Gate
    from tests.sidecar.runtime.conftest import Handlers, Sidecar

    Start = Callable[..., AbstractAsyncContextManager[Sidecar]]

FOREIGN = (("host", "evil.example"), ("origin", "http://evil.example"))


def a_plan(version: int, batch: int = 8, **shares: dict[str, float]) -> dict[str, Any]:
    """Return a plan with the routes in ``shares``, by application, and a class for every weight."""
    classes = sorted({name for weights in shares.values() for name in weights})
    return {
        "function": "echo",
        "version": version,
        "policy": "by-hand",
        "classes": [
            {"name": name, "cpu": 1.0, "batch_size": batch, "replicas": 1} for name in classes
        ],
        "routes": [
            {"app": app.replace("others", "*"), "weights": weights, "max_wait_s": 0.005}
            for app, weights in shares.items()
        ],
    }


@on_loop
async def test_applications_run_on_classes_of_plan(
    sidecar: Start, handler: Handlers, admin: AdminClient
) -> None:
    """Under a plan, each application runs on its class and responses carry the plan's version."""
    small, big = handler("small"), handler("big")
    async with sidecar(sidecar_upstreams=small, sidecar_admin=admin.pool.address) as running:
        plan = a_plan(3, web={"small": 1.0}, car={"big": 1.0})
        assert 200 == (await admin.put(plan, small=[small], big=[big])).status
        assert plan["classes"][0]["name"] == (await admin.get("/v1/plan"))["classes"][0]["name"]
        for app in ("web", "car", "car"):
            answer = await running.ask("hi", ("x-carpool-app", app), ("x-carpool-explain", "1"))
            assert (200, b"3") == (answer.status, answer.header(b"x-carpool-plan"))
        entries = await admin.get("/v1/batches?limit=2")
        assert ["big", "big"] == [entry["instance_class"] for entry in entries]
        assert [["car"], ["car"]] == [[r["app"] for r in e["requests"]] for e in entries]
        served = {i["class"]: i["items_sent"] for i in await admin.get("/v1/instances")}
        assert {"small": 1, "big": 2} == served


@pytest.mark.slow
@on_loop
async def test_plan_changes_under_load_lose_no_requests(
    sidecar: Start, handler: Handlers, admin: AdminClient
) -> None:
    """All of six hundred requests are answered correctly while instances and routes change."""
    a, b = handler("a"), handler("b")
    async with sidecar(sidecar_upstreams=a, sidecar_admin=admin.pool.address) as running:

        async def replan() -> None:
            for version in range(1, 31):
                shares = ({"a": 1.0}, {"b": 1.0}, {"a": 0.5, "b": 0.5})[version % 3]
                places = {name: [{"a": a, "b": b}[name]] for name in shares}
                plan = a_plan(version, batch=4 + version % 5, others=shares)
                assert 200 == (await admin.put(plan, **places)).status

        async def ask(number: int) -> bool:
            answer = await running.ask(f"slow:0.00{number % 5}{number}")
            return (200, f"slow:0.00{number % 5}{number}".encode()) == (answer.status, answer.body)

        async def load() -> list[bool]:
            rounds = [await asyncio.gather(*map(ask, range(60))) for _ in range(10)]
            return [good for answers in rounds for good in answers]

        good, _ = await asyncio.gather(load(), replan())
        assert [True] * 600 == good
        assert 600 == await running.metric('batch_requests_total{state="done"}')
        assert 30 == (await admin.get("/v1/plan"))["version"]


@pytest.mark.slow
@on_loop
async def test_requests_of_dead_instance_are_sent_to_another(
    sidecar: Start, handler: Handlers
) -> None:
    """A request that kills handlers fails alone, before the last handler is gone."""
    addresses = ",".join(handler(name) for name in "abcdef")
    async with sidecar(sidecar_upstreams=addresses) as running:
        words = ["crash", *(f"fine {number}" for number in range(15))]
        answers = await asyncio.gather(*[running.ask(word) for word in words])
        assert 502 == answers[0].status
        assert [b"fine %d" % number for number in range(15)] == [a.body for a in answers[1:]]
        assert 200 == await running.ready()


@on_loop
async def test_invalid_plan_is_refused_and_current_one_kept(
    sidecar: Start, admin: AdminClient
) -> None:
    """Each mistake in a plan is named with its path, and the current plan stays in force."""
    async with sidecar(sidecar_admin=admin.pool.address) as running:
        assert 200 == (await admin.put(a_plan(2, others={"only": 1.0}))).status
        wrong = a_plan(3, others={"only": 1.0})
        wrong["classes"][0]["cpu"] = -1
        several = a_plan(3, others={"x": 0.5, "y": 0.5})
        good = a_plan(3, others={"x": 1.0})
        refused = [
            (await admin.put(wrong), 400, b"plan.classes[0].cpu"),
            (await admin.put(several), 400, b"instances"),
            (await admin.put(good, z=["unix:/x"]), 400, b"instances.z"),
            (await admin.put(good, x=["nowhere"]), 400, b"instances.x"),
            (await admin.put(good, x=["unix:/x", "unix:/x"]), 400, b"in one class"),
            (await admin.put(a_plan(1, others={"only": 1.0})), 409, b"version = 1"),
            (await admin.put(a_plan(2, batch=9, others={"only": 1.0})), 409, b"version = 2"),
            (await admin.pool.request("PUT", "/v1/plan", (), b"{"), 400, b"JSON"),
            (await admin.pool.request("PUT", "/v1/plan", (), b"{}"), 400, b"plan"),
            (await admin.pool.request("GET", "/v1/batches?limit=x"), 400, b"limit"),
            (await admin.pool.request("GET", "/v2/plan"), 404, b"expected GET or PUT"),
        ]
        for answer, status, text in refused:
            assert status == answer.status
            assert text in answer.body
        assert 2 == (await admin.get("/v1/plan"))["version"]
        assert 200 == (await running.ask("still here")).status


@on_loop
async def test_function_listener_does_not_serve_admin_api(sidecar: Start) -> None:
    """By default there is no admin API, and the function's listener does not serve plans."""
    async with sidecar() as running:
        answer = await running.ask("{}", target="/v1/plan")
        assert (200, b"{}") == (answer.status, answer.body)


@on_loop
async def test_admin_api_requires_token(sidecar: Start, admin: AdminClient) -> None:
    """With a token set, requests without it get status 401."""
    async with sidecar(sidecar_admin=admin.pool.address, sidecar_admin_token="s3cret"):
        assert 401 == (await admin.pool.request("GET", "/v1/plan")).status
        assert 401 == (await admin.put(a_plan(1, others={"only": 1.0}))).status
        assert await AdminClient(admin.pool.address, "s3cret").get("/v1/plan") is None


@pytest.mark.parametrize(("token", "status"), [("", 403), ("s3cret", 200)])
@on_loop
async def test_pages_of_other_sites_are_refused_without_token(
    sidecar: Start, token: str, status: int
) -> None:
    """A page cannot reach the admin API through a browser, unless it knows the token."""
    address = f"127.0.0.1:{free_port()}"
    env = {"sidecar_admin_token": token} if token else {}
    async with sidecar(sidecar_admin=address, **env):
        own, page = AdminClient(address, token), AdminClient(address, token)
        for version, header in enumerate(FOREIGN, 1):
            page.headers = [*own.headers, header]
            answer = await page.put(a_plan(version, others={"only": 1.0}))
            assert status == answer.status
            assert (b"set sidecar_admin_token" in answer.body) is not bool(token)
        assert bool(token) is bool(await own.get("/v1/plan"))


def test_public_admin_address_without_token_is_refused() -> None:
    """A public admin address without a token is an error that says how to fix it."""
    ran = subprocess.run(
        [sys.executable, "-m", "sidecar"],
        env={**os.environ, "fprocess": "true", "sidecar_admin": "0.0.0.0:0"},
        cwd=ROOT,
        capture_output=True,
        timeout=HANG_S,
        check=False,
    )
    assert 2 == ran.returncode
    assert b"set sidecar_admin_token" in ran.stderr


@on_loop
async def test_batch_log_has_close_reason_of_each_batch(
    sidecar: Start, admin: AdminClient, gate: Gate
) -> None:
    """The batch log has close reasons, requests, waits and times of batches, but no bodies."""
    async with sidecar(
        sidecar_admin=admin.pool.address,
        carpool_batch_policy="fixed",
        carpool_batch_max="4",
        carpool_batch_wait="300ms",
    ) as running:
        call = ("x-call-id", "c-1")
        assert 200 == (await running.ask("alone", call)).status
        await running.together(gate, *[running.ask(word) for word in ("fail", "b", "c", "d")])
        entries = (await admin.get("/v1/batches"))[::-1]
        assert ["departure", "departure", "full"] == [entry["closed"] for entry in entries[:3]]
        assert {"isolation"} == {entry["closed"] for entry in entries[3:]}
        outcomes = [entry["outcome"] for entry in entries]
        assert ["answered", "answered", "error"] == outcomes[:3]
        assert 1 == [len(e["requests"]) for e in entries if e["outcome"] == "error"][-1]
        assert ["c-1"] == [request["call_id"] for request in entries[0]["requests"]]
        assert entries[0]["wait_s"] > 0.29
        assert entries[0]["exec_s"] > 0
        assert "alone" not in json.dumps(entries)


@on_loop
async def test_request_class_is_read_from_header(sidecar: Start) -> None:
    """The classes ``batch`` and ``interactive`` are served; the error for others names both."""
    async with sidecar() as running:
        for name in ("batch", "interactive"):
            assert 200 == (await running.ask("x", ("x-carpool-class", name))).status
        answer = await running.ask("x", ("x-carpool-class", "vip"))
        assert 400 == answer.status
        assert b"expected interactive or batch" in answer.body


@on_loop
async def test_the_admin_api_closes_with_the_sidecar(sidecar: Start, admin: AdminClient) -> None:
    """The admin API stops listening when the sidecar ends."""
    async with sidecar(sidecar_admin=admin.pool.address):
        assert [] == await admin.get("/v1/batches")
    with pytest.raises(ConnectionFailed):
        await admin.get("/v1/batches")
