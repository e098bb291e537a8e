"""Capacity of containers: exclusive cores, refusals, and what the next provider finds."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from faas_stack.provider.local.journal import Journal
from tests.docker.stage import DockerStage
from tests.docker.test_backend import cleared, container_of, inspect
from tests.faas_stack.rig import IMAGE, provider, story
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from pathlib import Path

    from faas_stack.provider.local.supervised_instance import SupervisedInstance
    from tests.faas_stack.rig import Rig

CORES = os.cpu_count() or 1
pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.usefixtures("docker_stage"),
    pytest.mark.skipif(CORES < 2, reason="one core"),
]
STAGE = DockerStage()
PINNED: dict[str, Any] = {"constraints": ["cpu=pinned"], "limits": {"cpu": "1"}}


def cpuset(instance: SupervisedInstance) -> str:
    """Return the cores of an instance's container from the engine."""
    return str(inspect(container_of(instance))["HostConfig"]["CpusetCpus"])


async def refused(rig: Rig, limits: dict[str, str]) -> tuple[int, str]:
    """Return the status and message of a deployment with these limits."""
    document = {"service": "too-much", "image": IMAGE, "limits": limits}
    answer = await rig.call("POST", "/system/functions", document)
    return answer.status, json.loads(answer.body)["error"]


@story(STAGE)
async def test_pinned_cores_belong_to_one_container(rig: Rig) -> None:
    """Other containers are moved or started on other cores, and get the cores back at the end."""
    await rig.deploy("early")
    await rig.deploy("fn", **PINNED)
    (fn,), (early,) = rig.instances("fn"), rig.instances("early")
    own = str(CORES - 1)
    rest = "0" if CORES == 2 else f"0-{CORES - 2}"
    await wait_until_async(lambda: rest == cpuset(early), what="moving off")
    await rig.deploy("late", labels={"com.carpool.cpu": "0.5"})
    assert [own, rest] == [cpuset(fn), cpuset(rig.instances("late")[0])]
    await rig.call("POST", "/system/scale-function/fn", {"replicas": 0})
    await wait_until_async(lambda: f"0-{CORES - 1}" == cpuset(early), what="coming back")


@story(STAGE)
async def test_requests_over_engine_capacity_are_refused(rig: Rig) -> None:
    """The refusal of too many cores or too much memory says what would fit."""
    await rig.deploy("fn", limits={"cpu": str(CORES), "memory": "128Mi"})
    status, said = await refused(rig, {"cpu": "500m"})
    assert (503, True) == (status, f"reserved by fn (1 x {CORES} cores and 128 MiB)" in said)
    size_bytes = rig.backend.ledger.capacity.memory_bytes
    status, said = await refused(rig, {"memory": f"{int(size_bytes / 1e6) - 64}MB"})
    assert (503, True) == (status, "none would fit" in said)
    answer = await rig.call("POST", "/system/scale-function/fn", {"replicas": 2})
    assert (503, True) == (answer.status, b"1 would fit" in answer.body)


def test_next_provider_restores_cores_and_capacity(tmp_path: Path) -> None:
    """Containers that continue keep their cores and capacity, which are not allocated again."""
    stack = f"carpool-test-{os.getpid()}"
    journal = Journal(tmp_path / "functions")
    stage = DockerStage(keep=True)

    async def first() -> str:
        async with provider(stage, tmp_path, stack=stack, journal=journal) as rig:
            await rig.deploy("fn", **PINNED)
            return cpuset(rig.instances("fn")[0])

    async def second(before: str) -> None:
        async with provider(stage, tmp_path, stack=stack, journal=journal) as rig:
            await rig.ready("fn")
            (fn,) = rig.instances("fn")
            assignment = rig.backend.ledger.assignment(fn.name)
            assert (before, (int(before),)) == (cpuset(fn), assignment.cores)
            assert 503 == (await refused(rig, {"cpu": str(CORES)}))[0]
            await rig.deploy("other", **PINNED)
            assert before != cpuset(rig.instances("other")[0])

    with cleared(stack, tmp_path):
        uvloop.run(second(uvloop.run(first())))
