"""Tests of limits through the provider: what instances get, keep and leave, and refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from faas_stack.partition.machine import Capacity
from tests.docs.snippets import take_one
from tests.faas_stack.partition.test_cgroups import groups_v1, needs_v1
from tests.faas_stack.rig import IMAGE, INSTANCE, ProcessStage, story
from tests.faas_stack.test_provider_process import alive, environment, pid_of
from tests.waiting import wait_until, wait_until_async

if TYPE_CHECKING:
    from tests.faas_stack.rig import Rig

pytestmark = pytest.mark.xdist_group("control groups")  # whose next provider clears them away

REFUSED = " ".join(
    take_one("docs/partition.md", "faas-cli deploy").partition("message: ")[2].split()
)
STAGE = ProcessStage()
MIB = 2**20
CORES = tuple(sorted(os.sched_getaffinity(0)))[:2]
TWO = Capacity(CORES, 2.0, 512 * MIB)
LIMITS = {"cpu": "500m", "memory": "128Mi"}

needs_two_cores = pytest.mark.skipif(len(CORES) < 2, reason="one core")


def limit(name: str, instance: str, file: str) -> str:
    """Return the kernel's limit for an instance of the provider with the folder ``name``."""
    controller = file.partition(".")[0]
    return (groups_v1()[controller].folder / name / instance / file).read_text().strip()


def limits(rig: Rig, instance: str) -> tuple[int, int]:
    """Return the quota in microseconds per 10 ms, and the memory in bytes."""
    name = rig.backend.run_dir.name
    quota_us = limit(name, instance, "cpu.cfs_quota_us")
    return int(quota_us), int(limit(name, instance, "memory.limit_in_bytes"))


def groups_of(pid: object) -> str:
    """Return the control groups of a process."""
    return Path(f"/proc/{pid}/cgroup").read_text()


def left(name: str) -> list[Path]:
    """Return the remaining groups of a provider."""
    found = (group.folder / name for group in groups_v1().values())
    return [folder for folder in found if folder.exists()]


async def refusal(rig: Rig, method: str, path: str, document: object) -> tuple[int, str]:
    """Return the status and message of a refused call."""
    answer = await rig.call(method, path, document)
    return answer.status, json.loads(answer.body)["error"]


# -- what an instance gets ----------------------------------------------------------------------


async def children(rig: Rig) -> list[int]:
    """Return the process ids that instances of ``fn`` have started, newest last."""
    return [int(line.split()[1]) for line in await rig.logs("fn") if line.startswith("child ")]


@needs_v1
@story(STAGE, capacity=TWO)
async def test_deployment_limits_apply_to_group(rig: Rig) -> None:
    """A deployment's quota and memory limit the group with all processes of the instance."""
    await rig.deploy("fn", limits=LIMITS, envVars={"spawn": "1"})
    (instance,) = rig.instances("fn")
    assert (5000, 128 * MIB) == limits(rig, instance.name)
    for pid in (pid_of(instance), *await children(rig)):
        group = f"{rig.backend.run_dir.name}/{instance.name}\n"
        assert 3 == groups_of(pid).count(group)
    env = (await environment(rig))["env"]
    assert ("1", "0.5") == (env["OMP_NUM_THREADS"], env["carpool_cpu"])
    status = json.loads((await rig.call("GET", "/system/function/fn")).body)
    assert status["partition"].endswith("128 MiB (cgroup v1)")
    assert f"carpool: {status['partition']}" in await rig.logs("fn")


@story(STAGE, capacity=TWO)
async def test_thread_counts_in_environment_are_kept(rig: Rig) -> None:
    """Thread counts in a function's environment are kept."""
    own = {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "2"}
    await rig.deploy("fn", limits={"cpu": "1"}, envVars=own)
    env = (await environment(rig))["env"]
    found = [env[f"{name}_NUM_THREADS"] for name in ("OMP", "MKL", "OPENBLAS")]
    assert ["3", "2", "1"] == found


@needs_v1
@story(STAGE, capacity=TWO)
async def test_instance_over_memory_limit_is_killed_alone(rig: Rig) -> None:
    """An instance that exceeds its memory limit is killed and restarted under the same limit.

    Its log gives the reason, and other instances are not affected.
    """
    await rig.deploy("fn", limits={"memory": "96Mi"})
    await rig.deploy("other", limits={"memory": "96Mi"})
    before = pid_of(rig.instances("other")[0])
    assert 502 == (await rig.call("GET", f"/function/fn/eat?bytes={256 * MIB}")).status
    await rig.ready("fn")
    assert 96 * MIB == limits(rig, rig.instances("fn")[0].name)[1]
    assert before == pid_of(rig.instances("other")[0])
    said = "carpool: ended with SIGKILL, out of memory; its limit is com.carpool.memory"
    assert any(line.startswith(said) for line in await rig.logs("fn"))
    for name, often in (("fn", "96 MiB (cgroup v1); out of memory 1 time"), ("other", "v1)")):
        status = json.loads((await rig.call("GET", f"/system/function/{name}")).body)
        assert status["partition"].endswith(often)


# -- what it keeps and leaves -------------------------------------------------------------------


@pytest.mark.slow
@needs_v1
@story(STAGE, capacity=TWO)
async def test_limits_survive_a_restart_of_the_function(rig: Rig) -> None:
    """After SIGKILL, the next run has the same limits, and the children of the last are gone."""
    await rig.deploy("fn", limits=LIMITS, envVars={"spawn": "1"})
    (instance,) = rig.instances("fn")
    first, (child,) = pid_of(instance), await children(rig)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await wait_until_async(lambda: pid_of(instance) not in (first, 0) and instance.ready)
    assert (5000, 128 * MIB) == limits(rig, instance.name)
    assert f"/{instance.name}\n" in groups_of(pid_of(instance))
    assert not alive(child)


@needs_v1
@story(STAGE, capacity=TWO)
async def test_scale_down_removes_group(rig: Rig) -> None:
    """An instance that is scaled down leaves no group."""
    await rig.deploy("fn", limits=LIMITS)
    (instance,) = rig.instances("fn")
    await rig.call("POST", "/system/scale-function/fn", {"replicas": 0})
    await wait_until_async(lambda: not rig.function("fn").replica_set.replicas)
    name = rig.backend.run_dir.name
    assert [] == [g for group in groups_v1().values() for g in (group.folder / name).glob("*/")]
    assert rig.backend.ledger.assignment(instance.name) is None


PROVIDER = """
import asyncio, sys
from pathlib import Path
from faas_stack.provider.local.build_context import BuildContext
from faas_stack.provider.deployment import Deployment
from faas_stack.provider.local.orchestrator import LocalOrchestrator
from faas_stack.provider.local.process_backend import ProcessBackend
from faas_stack.provider.secrets import SecretStore

async def main(folder):
    images = {"img": BuildContext("img", folder, "x")}
    secrets = SecretStore(folder)
    backend = ProcessBackend(images, secrets, command=sys.argv[2:])
    await backend.open()
    limits = {"cpu": "100m", "memory": "128Mi"}
    deployment = Deployment("fn", "img", limits=limits, env_vars={"spawn": "1", "deaf": "1"})
    function = await LocalOrchestrator(backend, secrets).deploy(deployment)
    while not function.replica_set.available:
        await asyncio.sleep(0.01)
    print(backend.run_dir, backend._keeper.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1])))
"""


def start_provider(folder: Path) -> tuple[subprocess.Popen[bytes], str, int]:
    """Start a provider with one instance; return it, its groups' name and its keeper's pid."""
    provider = subprocess.Popen(
        [sys.executable, "-c", PROVIDER, str(folder), *INSTANCE],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    assert provider.stdout is not None
    run_dir, keeper = provider.stdout.readline().decode().split()
    provider.stdout.close()
    return provider, Path(run_dir).name, int(keeper)


@needs_v1
def test_groups_of_a_killed_provider_are_removed(tmp_path: Path) -> None:
    """After SIGKILL to the provider, its instances are ended and no group remains."""
    provider, name, _ = start_provider(tmp_path)
    assert 3 == len(left(name))
    provider.kill()
    provider.wait()
    wait_until(lambda: not left(name), what="no group")


@pytest.mark.slow
@needs_v1
def test_next_provider_removes_groups_if_keeper_was_killed(tmp_path: Path) -> None:
    """If the keeper is killed, too, the next provider ends and removes what remains."""
    provider, name, keeper = start_provider(tmp_path)
    inside = [int(p) for p in (left(name)[0] / "fn-1" / "cgroup.procs").read_text().split()]
    assert 2 == len(inside)
    os.kill(keeper, signal.SIGKILL)
    provider.kill()
    provider.wait()
    (tmp_path / "next").mkdir()
    second, _, _ = start_provider(tmp_path / "next")
    assert ([], [False, False]) == (left(name), [alive(pid) for pid in inside])
    second.kill()
    second.wait()


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.slow
@story(STAGE, capacity=TWO)
async def test_requests_over_capacity_are_refused(rig: Rig) -> None:
    """Deploy, scale and update refuse more than fits, with a message, and change nothing."""
    await rig.deploy("a", limits={"cpu": "1", "memory": "256Mi"})
    await rig.deploy("free")
    document: dict[str, Any] = {"service": "b", "image": IMAGE, "limits": {"cpu": "1500m"}}
    status, said = await refusal(rig, "POST", "/system/functions", document)
    shown = REFUSED.replace("23.5 GiB", "512 MiB").replace("1 core)", "1 core and 256 MiB)")
    assert (503, json.loads(shown)["error"]) == (status, said)
    assert 404 == (await rig.call("GET", "/system/function/b")).status
    status, said = await refusal(rig, "POST", "/system/scale-function/a", {"replicas": 3})
    assert (503, True) == (status, "2 would fit" in said)
    document = {"service": "a", "image": IMAGE, "limits": {"memory": "1Gi"}}
    status, said = await refusal(rig, "PUT", "/system/functions", document)
    assert (400, True) == (status, "limits.memory = '1 GiB': expected at most 512 MiB" in said)
    assert 1 == json.loads((await rig.call("GET", "/system/function/a")).body)["replicas"]
    await rig.call("POST", "/system/scale-function/a", {"replicas": 2})
    await rig.ready("a", 2)
    await rig.call("POST", "/system/scale-function/free", {"replicas": 3})
    await rig.ready("free", 3)


@pytest.mark.slow
@story(STAGE, capacity=TWO)
async def test_function_at_zero_holds_no_share(rig: Rig) -> None:
    """A function at zero replicas holds no share, and its calls are refused until it fits again."""
    await rig.deploy("a", limits={"cpu": "1"})
    await rig.call("POST", "/system/scale-function/a", {"replicas": 0})
    await rig.deploy("b", limits={"cpu": "2"})
    answer = await rig.call("GET", "/function/a")
    assert (503, True) == (answer.status, b"no capacity for 1 instance of 'a'" in answer.body)
    await rig.call("DELETE", "/system/functions", {"functionName": "b"})
    assert 200 == (await rig.call("GET", "/function/a")).status


@pytest.mark.slow
@story(STAGE, capacity=TWO)
async def test_new_instance_waits_for_share_of_ending_one(rig: Rig) -> None:
    """A new instance waits until an ending one has left the share that it was reserved."""
    await rig.deploy("a", limits={"cpu": "2"}, envVars={"deaf": "1"})
    (going,) = rig.instances("a")
    pid = pid_of(going)
    await rig.call("DELETE", "/system/functions", {"functionName": "a"})
    await rig.deploy("b", ready=False, limits={"cpu": "2"})
    (coming,) = rig.instances("b")
    await wait_until_async(lambda: "held by a-1" in coming.reason)
    assert (0, True) == (pid_of(coming), alive(pid))
    await rig.ready("b")
    assert not alive(pid)


@pytest.mark.slow
@story(STAGE, capacity=TWO)
async def test_update_without_room_ends_old_replica_first(rig: Rig) -> None:
    """Without room for both, the old replica ends first, and requests wait for the new one."""
    await rig.deploy("fn", limits={"cpu": "2"}, envVars={"version": "1"})
    changed = {"service": "fn", "image": IMAGE, "limits": {"cpu": "2"}, "envVars": {"version": "2"}}
    assert 202 == (await rig.call("PUT", "/system/functions", changed)).status
    answer = await rig.call("GET", "/function/fn")
    assert 200 == answer.status
    await wait_until_async(lambda: ["fn-2"] == [i.name for i in rig.instances("fn")])
    await rig.ready("fn")
    assert "2" == (await environment(rig))["env"]["version"]


@needs_two_cores
@story(STAGE, capacity=TWO)
async def test_pinned_replicas_have_different_cores(rig: Rig) -> None:
    """Replicas with a whole number of cores are pinned to different cores."""
    await rig.deploy("fn", limits={"cpu": "1"})
    await rig.call("POST", "/system/scale-function/fn", {"replicas": 2})
    await rig.ready("fn", 2)
    pids = [pid_of(instance) for instance in rig.instances("fn")]
    assert [{CORES[0]}, {CORES[1]}] == sorted(map(os.sched_getaffinity, pids), key=min)
    metrics = (await rig.call("GET", "/metrics")).body
    assert b"provider_cores 2.0\n" in metrics
    assert b"provider_reserved_cores 2.0\n" in metrics
    info = json.loads((await rig.call("GET", "/system/info")).body)
    assert {"cpus": 2.0, "gpus": 0, "memory_mb": 512 * MIB / 1e6} == info["machine"]


@story(STAGE, capacity=TWO)
async def test_missing_gpu_is_refused_with_reason(rig: Rig) -> None:
    """A function that needs a GPU is refused with what is missing: the module, driver or GPU."""
    if rig.backend._partitions.gpus.names:
        pytest.skip("there is a GPU")
    document = {"service": "fn", "image": IMAGE, "labels": {"com.carpool.gpu": "40"}}
    status, said = await refusal(rig, "POST", "/system/functions", document)
    assert (400, True) == (
        status,
        said.startswith("com.carpool.gpu = '40': expected a GPU on this machine"),
    )
    assert "nvidia-ml-py is not installed" in said or "NVIDIA's driver" in said


@story(STAGE, capacity=Capacity())
async def test_partitions_off_is_noted_and_refuses_nothing(rig: Rig) -> None:
    """With partitions off, a note says so, and functions for a larger machine can be tried out."""
    note = "partitions: off: only thread counts are limited"
    assert note in rig.backend.notes  # beside one on of-watchdog, where that is installed
    await rig.deploy("fn", limits={"cpu": "64"})
    assert "64" == (await environment(rig))["env"]["OMP_NUM_THREADS"]
    status = json.loads((await rig.call("GET", "/system/function/fn")).body)
    assert "64 cores by 64 threads alone, no quota (no cgroups)" == status["partition"]
    assert "machine" not in json.loads((await rig.call("GET", "/system/info")).body)


@story(STAGE, capacity=TWO)
async def test_the_front_of_a_scaled_function_is_not_counted(rig: Rig) -> None:
    """The front of a scaled function is not counted, as its labels are those of its instances."""
    size = {"com.carpool.cpu": "2"}
    await rig.deploy("fn", labels=size, envVars={"sidecar_scaler": "127.0.0.1:1"})
    env = {"sidecar_scaler": "127.0.0.1:1", "sidecar_class": "b8-c2"}
    await rig.deploy("fn--b8-c2", labels=size, envVars=env)
    document = {"service": "other", "image": IMAGE, "labels": size, "envVars": env}
    assert 503 == (await refusal(rig, "POST", "/system/functions", document))[0]
