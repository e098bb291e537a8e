"""The docker backend with a real engine: what containers get, survive and leave behind."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import uvloop
from docker.client import from_env

from carpool.errors import ConfigError
from faas_stack.provider.local.containers.docker_backend import DockerBackend, DockerOptions
from faas_stack.provider.local.journal import Journal
from faas_stack.provider.secrets import SecretStore
from tests.docker.stage import DockerStage
from tests.faas_stack.rig import IMAGE, Rig, provider, story
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from faas_stack.provider.local.containers.container_runner import ContainerRunner
    from faas_stack.provider.local.supervised_instance import SupervisedInstance
    from tests.docker.engine import Engine

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.usefixtures("docker_stage")]
STAGE = DockerStage()


def inspect(name: str) -> dict[str, Any]:
    """Return the engine's description of a container."""
    engine = from_env()
    try:
        shown: dict[str, Any] = engine.containers.get(name).attrs
        return shown
    finally:
        engine.close()


def container_of(instance: SupervisedInstance) -> str:
    """Return the name of an instance's current container."""
    runner: ContainerRunner = instance.runner  # type: ignore[assignment]
    return runner.container


def containers(stack: str) -> list[str]:
    """Return the names of a stack's containers, running or not."""
    engine = from_env()
    try:
        found = engine.containers.list(
            all=True, ignore_removed=True, filters={"label": f"carpool.stack={stack}"}
        )
        return sorted(container.name for container in found)
    finally:
        engine.close()


async def seen(rig: Rig, name: str = "fn") -> dict[str, Any]:
    """Return what an instance of a function reports about its surroundings."""
    document: dict[str, Any] = json.loads((await rig.call("GET", f"/function/{name}")).body)
    return document


def stack_of(rig: Rig) -> str:
    """Return the stack of a story."""
    stack: str = rig.backend._options.stack
    return stack


# -- what a container gets ----------------------------------------------------------------------


@story(STAGE)
async def test_container_is_confined(rig: Rig) -> None:
    """The engine applies limits, a read-only root, no privileges and an ordinary user."""
    await rig.deploy(
        "fn",
        labels={"com.carpool.cpu": "0.5", "topic": "cats"},
        limits={"memory": "128Mi"},
        readOnlyRootFilesystem=True,
    )
    shown = inspect(container_of(rig.instances("fn")[0]))
    host, config = shown["HostConfig"], shown["Config"]
    assert (500_000_000, 128 * 2**20, True) == (
        *(host["NanoCpus"], host["Memory"]),
        host["ReadonlyRootfs"],
    )
    assert ("app", "cats", "fn") == (
        *(config["User"], config["Labels"]["topic"]),
        config["Labels"]["carpool.function"],
    )
    assert [None] == list(shown["NetworkSettings"]["Ports"].values())  # published nowhere
    assert "1" == (await seen(rig))["env"]["OMP_NUM_THREADS"]


@story(STAGE)
async def test_pinned_cores_are_spread(rig: Rig) -> None:
    """Pinned replicas get their own cores while some are free."""
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one core")
    await rig.deploy("fn", constraints=["cpu=pinned"], labels={"com.carpool.cpu": "1"})
    await rig.call("POST", "/system/scale-function/fn", {"replicas": 2})
    await rig.ready("fn", 2)
    sets = {inspect(container_of(i))["HostConfig"]["CpusetCpus"] for i in rig.instances("fn")}
    assert 2 == len(sets)
    await rig.deploy("own", constraints=["cpuset=0"])
    assert "0" == inspect(container_of(rig.instances("own")[0]))["HostConfig"]["CpusetCpus"]


@story(STAGE)
async def test_networks_are_private(rig: Rig) -> None:
    """A function reaches functions of its own stack, and of no other."""
    await rig.deploy("one")
    await rig.deploy("two")
    code = "import socket, sys; socket.create_connection((sys.argv[1], 8080), int(sys.argv[2]))"

    def reaches(address: str, patience_s: int) -> bool:
        name, host = container_of(rig.instances("one")[0]), address.rpartition(":")[0]
        engine = from_env()
        try:
            command = ["python", "-c", code, host, str(patience_s)]
            tried = engine.containers.get(name).exec_run(command)
            return bool(tried.exit_code == 0)
        finally:
            engine.close()

    assert await asyncio.to_thread(reaches, rig.instances("two")[0].address, 60)
    (rig.folder / "other").mkdir()
    async with provider(STAGE, rig.folder / "other") as other:
        await other.deploy("fn")
        assert not await asyncio.to_thread(reaches, other.instances("fn")[0].address, 2)


# -- what it survives ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["kill", "remove"])
def test_killed_or_removed_container_is_restarted(how: str, tmp_path: Path) -> None:
    """An instance that others kill or remove is restarted, and the log says so."""

    @story(STAGE)
    async def play(rig: Rig) -> None:
        await rig.deploy("fn")
        (instance,) = rig.instances("fn")
        before = inspect(container_of(instance))["Id"]
        engine = from_env()
        victim = engine.containers.get(container_of(instance))
        await asyncio.to_thread(
            victim.kill if how == "kill" else partial(victim.remove, force=True)
        )
        engine.close()
        await rig.told("fn", "carpool: starting again in 0.1 s")
        await rig.ready("fn")
        assert before != inspect(container_of(instance))["Id"]
        assert 200 == (await rig.call("GET", "/function/fn")).status
        said = [line for line in await rig.logs("fn") if line.startswith("carpool: ")]
        assert said[0].startswith("carpool: ended with ")
        assert "carpool: starting again in 0.1 s" == said[1]

    play(tmp_path)


@story(STAGE)
async def test_out_of_memory_kill_is_logged(rig: Rig) -> None:
    """A container that exceeds its memory limit is killed alone, and its log gives the reason."""
    await rig.deploy("fn", limits={"memory": "96Mi"})
    assert b"1000" == (await rig.call("GET", "/function/fn/eat?bytes=1000")).body
    assert 502 == (await rig.call("GET", f"/function/fn/eat?bytes={256 * 2**20}")).status
    said = await rig.told("fn", "carpool: ended")
    assert "out of memory; its limit is com.carpool.memory or limits.memory" in said
    await rig.ready("fn")


@story(STAGE)
async def test_stop_is_sigterm_then_sigkill(rig: Rig) -> None:
    """A container that ignores SIGTERM is killed after its grace period, and removed."""
    await rig.deploy("fn", envVars={"deaf": "1", "spawn": "1"})
    log = rig.function("fn").replica_set.log
    await rig.call("POST", "/system/scale-function/fn", {"replicas": 0})
    await wait_until_async(lambda: not rig.function("fn").replica_set.replicas, what="no replica")
    assert "carpool: still running 3 s after SIGTERM: killed" in [x.text for x in log.since(0)]
    await wait_until_async(lambda: [] == containers(stack_of(rig)), what="its removal")


def test_requests_wait_while_engine_restarts(docker_engine: Engine, tmp_path: Path) -> None:
    """Requests wait while the engine is away, and are then answered by one container."""
    restart = docker_engine.restart
    if restart is None:
        pytest.skip("the engine is not the tests' own")

    @story(STAGE)
    async def play(rig: Rig) -> None:
        await rig.deploy("fn")
        (instance,) = rig.instances("fn")
        back = asyncio.get_running_loop().run_in_executor(None, restart)
        await wait_until_async(lambda: not instance.ready)
        assert 200 == (await rig.call("GET", "/function/fn")).status
        await back
        assert 1 == len(containers(stack_of(rig)))

    play(tmp_path)


# -- providers come and go ----------------------------------------------------------------------


@contextmanager
def cleared(stack: str, folder: Path) -> Iterator[None]:
    """Remove what a stack has left at the end."""

    async def clear() -> None:
        chosen = DockerOptions(state=folder / "state", stack=stack, network=stack)
        backend = DockerBackend(SecretStore(folder / "secrets"), chosen)
        await backend.open(claim=True)
        await backend.clear()
        await backend.close()

    try:
        yield
    finally:
        uvloop.run(clear())


def test_functions_outlive_their_provider(tmp_path: Path) -> None:
    """A new provider takes over running containers and their logs, and restarts stopped ones."""
    stack = f"carpool-test-{os.getpid()}"
    journal = Journal(tmp_path / "functions")
    stage = DockerStage(keep=True)

    async def first() -> tuple[dict[str, Any], list[str], str]:
        async with provider(stage, tmp_path, stack=stack, journal=journal) as rig:
            await rig.deploy("fn", labels={"topic": "cats"})
            await rig.call("POST", "/system/scale-function/fn", {"replicas": 2})
            await rig.deploy("zero", ready=False, labels={"com.carpool.scale.min": "0"})
            await rig.deploy("gone")
            await rig.ready("fn", 2)
            await rig.call("POST", "/function/fn/print", b"before")
            await rig.printed("fn", "before")
            status = json.loads((await rig.call("GET", "/system/function/fn")).body)
            printer = rig.function("fn").replica_set.log.since(0)[-1].instance
            victim = next(container_of(i) for i in rig.instances("fn") if i.name != printer)
            return status, containers(stack), victim

    async def second() -> None:
        async with provider(stage, tmp_path, stack=stack, journal=journal) as rig:
            await rig.ready("fn", 2)
            after = json.loads((await rig.call("GET", "/system/function/fn")).body)
            assert status == {**after, "invocationCount": status["invocationCount"]}
            assert (0, 2) == (rig.function("zero").replicas, len(rig.instances("fn")))
            assert ids == {inspect(container_of(i))["Id"] for i in rig.instances("fn")} & ids
            await rig.printed("fn", "before")
            assert 200 == (await rig.call("GET", "/function/fn")).status
            assert 200 == (await rig.call("GET", "/function/zero")).status
            await rig.backend.sweep()
            here = {container_of(i) for name in ("fn", "zero") for i in rig.instances(name)}
            assert here == set(containers(stack))

    with cleared(stack, tmp_path):
        status, names, victim = uvloop.run(first())
        assert names == containers(stack)  # the provider is gone, they are not
        journal.forget("gone", "openfaas-fn")
        engine = from_env()
        ids = {
            c.id
            for c in engine.containers.list(ignore_removed=True)
            if "-fn-" in c.name and c.name != victim
        }
        engine.containers.get(victim).kill()
        engine.close()
        uvloop.run(second())


def test_stack_name_of_another_provider_is_refused(tmp_path: Path) -> None:
    """A provider does not start with the stack name of another provider, and removes nothing."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    @story(STAGE)
    async def play(rig: Rig) -> None:
        await rig.deploy("fn")
        with pytest.raises(ConfigError, match="choose another, or remove them with --clear"):
            async with STAGE.open(tmp_path / "b", SecretStore(tmp_path), stack=stack_of(rig)):
                pass
        assert 200 == (await rig.call("GET", "/function/fn")).status

    play(tmp_path / "a")


# -- what cannot be deployed --------------------------------------------------------------------


@story(STAGE)
async def test_limits_that_engine_refuses_get_400(rig: Rig) -> None:
    """Bad limits give 400 with the engine's message, and leave nothing behind."""
    cores = os.cpu_count() or 1
    cases: list[tuple[dict[str, Any], str]] = [
        ({"limits": {"memory": "2Mi"}}, "memory limit"),
        ({"limits": {"cpu": "4000"}}, f"limits.cpu = '4000': expected at most {cores} cores"),
        ({"constraints": ["cpuset=900"]}, "Requested CPUs are not available"),
        ({"constraints": ["cpuset=x"]}, "Invalid value x for cpuset cpus"),
        ({"limits": {"memory": "lots"}}, "limits.memory = 'lots'"),
        ({"secrets": ["nope"]}, "secrets = 'nope': expected an existing secret"),
        ({"image": "no such image"}, "image = 'no such image': expected an image that is here or"),
        ({"image": "localhost:9/none:1"}, "image = 'localhost:9/none:1': expected an image that"),
        ({"labels": {"com.carpool.gpu": "50"}}, "com.carpool.gpu = '1': expected at most 0 GPUs"),
        (
            {"constraints": ["cpu=pinned"], "labels": {"com.carpool.cpu": str(cores + 1)}},
            f"com.carpool.cpu, or limits.cpu = '{cores + 1}': expected at most {cores} cores",
        ),
    ]
    for fields, expected in cases:
        document = {"service": "fn", "image": IMAGE, **fields}
        answer = await rig.call("POST", "/system/functions", document)
        assert (400, True) == (answer.status, expected in answer.body.decode()), answer.body
        assert 404 == (await rig.call("GET", "/system/function/fn")).status
    assert [] == containers(stack_of(rig))
    assert [] == list((rig.folder / "state").glob("mounts/*"))
