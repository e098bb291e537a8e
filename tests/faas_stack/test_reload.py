"""Tests of reloading: new instances serve before old ones end, and broken ones change nothing."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
import uvloop

from faas_stack.provider.deployment import Deployment
from faas_stack.provider.local.orchestrator import LocalOrchestrator
from faas_stack.provider.scaler_access import model_runners
from tests.faas_stack.rig import IMAGE, ProcessStage, story
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from carpool.http.client import Response
    from tests.faas_stack.rig import Rig

STAGE = ProcessStage()


async def reload(rig: Rig, name: str = "fn", **document: Any) -> Response:
    """Request a reload."""
    return await rig.call("POST", f"/system/reload-function/{name}", document or None)


def watched(rig: Rig) -> list[str]:
    """Return a list of what happens to each image that is rebuilt for a reload."""
    fates: list[str] = []

    @asynccontextmanager
    async def rebuild(_: str) -> AsyncIterator[None]:
        fates.append("restored")
        yield
        fates[-1] = "kept"

    rig.orchestrator.rollout.rebuild = rebuild
    return fates


async def begun(rig: Rig) -> asyncio.Task[Response]:
    """Start a reload that waits for an instance that takes long to become ready."""
    await rig.deploy("fn", envVars={"ready_after": "60"}, ready=False)
    replica_set = rig.function("fn").replica_set
    before = replica_set.revision
    reloading = asyncio.create_task(reload(rig))
    await wait_until_async(lambda: replica_set.revision > before, what="the reload's beginning")
    return reloading


def names(rig: Rig) -> set[str]:
    """Return the names of the function's instances."""
    return {instance.name for instance in rig.instances("fn")}


def told(answer: Response) -> dict[str, Any]:
    """Return the document of a completed reload without its duration."""
    document: dict[str, Any] = json.loads(answer.body)
    assert document.pop("seconds") >= 0
    return document


@story()
async def test_reload_responds_when_all_instances_are_new(rig: Rig) -> None:
    """A reload responds when all instances are new and ready, and no old one is left."""
    await rig.deploy("fn")
    assert 202 == (await rig.call("POST", "/system/scale-function/fn", {"replicas": 2})).status
    await rig.ready("fn", 2)
    before = names(rig)
    answer = await reload(rig)
    assert 200 == answer.status, answer.body
    assert {"name": "fn", "replicas": 2, "finished": True} == told(answer)
    assert 2 == len(rig.function("fn").running) == rig.function("fn").available
    assert set() == before & names(rig)


@pytest.mark.slow
@story()
async def test_concurrent_reloads_run_one_after_the_other(rig: Rig) -> None:
    """Two concurrent reloads run one after the other, with new instances each."""
    await rig.deploy("fn")
    seen = names(rig)
    answers = await asyncio.gather(reload(rig), reload(rig))
    assert [200, 200] == [answer.status for answer in answers]
    assert 1 == len(rig.function("fn").running)
    assert set() == seen & names(rig)


@story()
async def test_reload_of_function_at_zero_starts_nothing(rig: Rig) -> None:
    """A reload of a function at zero starts nothing; the next call starts a new instance."""
    await rig.deploy("fn", labels={"com.carpool.scale.min": "0"}, ready=False)
    answer = await reload(rig)
    assert (200, 0) == (answer.status, told(answer)["replicas"])
    assert [] == rig.function("fn").running
    assert 200 == (await rig.call("GET", "/function/fn")).status


@story()
async def test_unknown_functions_and_invalid_timeouts_are_errors(rig: Rig) -> None:
    """Unknown functions and invalid timeouts are errors of the usual form."""
    await rig.deploy("fn")
    unknown = await reload(rig, "gn")
    assert (404, b"no function 'gn'") == (unknown.status, unknown.body[11:27])
    soon = await reload(rig, timeout="soon")
    assert 400 == soon.status
    assert b"timeout = 'soon': expected a duration such as 90s" in soon.body


@story(STAGE)
async def test_reload_that_is_not_ready_in_time_changes_nothing(rig: Rig) -> None:
    """If the new instance is not ready in time, it is removed, and the old one keeps serving."""
    await rig.deploy("fn", envVars={"ready_after": "1"})
    (before,) = names(rig)
    images = watched(rig)
    answer = await reload(rig, timeout="10ms")
    assert 502 == answer.status
    assert "fn is not ready after 0.01 s" in json.loads(answer.body)["error"]
    await wait_until_async(lambda: len(rig.function("fn").running) == 1, what="the new one gone")
    assert {before} == names(rig)
    assert ["restored"] == images
    assert 200 == (await rig.call("GET", "/function/fn")).status


@pytest.mark.slow
@story(STAGE)
async def test_update_during_reload_ends_it_with_409(rig: Rig) -> None:
    """An update during a reload ends it with a 409, and both update and image are kept."""
    images = watched(rig)
    reloading = await begun(rig)
    document = {"service": "fn", "image": IMAGE, "envVars": {"mine": "1"}}
    assert 202 == (await rig.call("PUT", "/system/functions", document)).status
    answer = await reloading
    assert (409, True) == (answer.status, b"was updated while it was reloaded" in answer.body)
    await rig.ready("fn")
    assert ["kept"] == images
    assert {"mine": "1"} == rig.function("fn").deployment.env_vars


@story(STAGE)
async def test_removal_during_reload_ends_it_with_404(rig: Rig) -> None:
    """Removing a function ends its reload with a 404."""
    reloading = await begun(rig)
    removed = await rig.call("DELETE", "/system/functions", {"functionName": "fn"})
    assert 202 == removed.status
    assert 404 == (await reloading).status


class Machine:
    """A backend with instances that are ready at once; it runs `meanwhile` during a check."""

    lasting = False
    ledger = Mock()

    def __init__(self) -> None:
        self.meanwhile: dict[str, Callable[[], Awaitable[None]]] = {}

    def size(self, deployment: Deployment) -> object:
        return deployment

    async def check(self, deployment: Deployment) -> None:
        if work := self.meanwhile.pop(deployment.service, None):
            await work()

    def start(self, deployment: Deployment, log: object, changed: Callable[[], None]) -> object:
        del log
        asyncio.get_running_loop().call_soon(changed)
        return Mock(name=deployment.service, ready=True, failing=False, reason="", confined="")

    async def stop(self, instance: object) -> None:
        del instance


@pytest.mark.parametrize("checked", ["fn--a", "fn--b"])
def test_reload_keeps_update_of_class_before_its_turn(checked: str) -> None:
    """A reload does not undo an update of a class that comes before its turn."""

    async def play() -> None:
        machine = Machine()
        orchestrator = LocalOrchestrator(machine, Mock())  # type: ignore[arg-type]
        orchestrator.scaler = Mock(grant=lambda each: each)
        labels = {"com.carpool.scale.policy": "infless", "com.carpool.slo": "1s"}
        await orchestrator.deploy(deployment("fn", labels=labels))
        for letter in "ab":
            await orchestrator.deploy(runner(letter, "1"))
        fresh = runner("b", "2")
        machine.meanwhile[checked] = lambda: orchestrator.update(fresh)
        assert (2, True) == await orchestrator.reload("fn", "openfaas-fn", HANG_S)
        found = orchestrator.find("fn--b").deployment
        assert ("2", True) == (found.env_vars["word"], found.uid != fresh.uid)
        await orchestrator.close()

    uvloop.run(play())


def runner(letter: str, word: str) -> Deployment:
    """Return the deployment of a class of a scaled function."""
    env = {"sidecar_function": "fn", "sidecar_class": letter, "word": word}
    return deployment(f"fn--{letter}", envVars=env)


def test_reload_of_scaled_function_reloads_its_classes() -> None:
    """A reload of a scaled function reloads its classes, as its front has no model."""
    front = deployment(
        "fn", labels={"com.carpool.scale.policy": "infless", "com.carpool.slo": "1s"}
    )
    ours = deployment("fn--a", envVars={"sidecar_function": "fn", "sidecar_class": "a"})
    other = deployment("gn--a", envVars={"sidecar_function": "gn", "sidecar_class": "a"})
    there = [front, ours, other, deployment("gn")]
    assert [ours] == model_runners(front, there, scaled=True)
    assert [front] == model_runners(front, there, scaled=False)
    assert [ours] == model_runners(ours, there, scaled=True)


def deployment(name: str, **fields: Any) -> Deployment:
    """Return the deployment of a function."""
    return Deployment.from_json(json.dumps({"service": name, "image": IMAGE, **fields}).encode())
