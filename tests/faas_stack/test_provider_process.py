"""Tests of the process backend: environment, readiness, restarts, stops and cleanup."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from carpool.process import leftovers
from faas_stack.provider.local import network_namespace, supervised_instance
from tests.faas_stack.rig import IMAGE, INSTANCE, ProcessStage, story
from tests.waiting import stop_process, wait_until, wait_until_async

if TYPE_CHECKING:
    from faas_stack.provider.local.process_runner import ProcessRunner
    from faas_stack.provider.local.supervised_instance import SupervisedInstance
    from tests.faas_stack.rig import Rig

STAGE = ProcessStage()


def alive(pid: int) -> bool:
    """Return whether a process runs and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pid_of(instance: SupervisedInstance) -> int:
    """Return the process id of an instance's entry command."""
    runner: ProcessRunner = instance.runner  # type: ignore[assignment]
    return runner.pid


def network(pid: object) -> str:
    """Return the network namespace of a process."""
    return str(Path(f"/proc/{pid}/ns/net").readlink())


async def environment(rig: Rig, name: str = "fn") -> dict[str, Any]:
    """Return what an instance of a function sees."""
    document: dict[str, Any] = json.loads((await rig.call("GET", f"/function/{name}")).body)
    return document


@story(hosts=("provider.example",))
async def test_each_ready_replica_is_a_prometheus_target(rig: Rig) -> None:
    """Each ready replica is a target at the provider, under the host name of the request."""
    await rig.deploy("fn")
    (instance,) = rig.instances("fn")
    host = [("host", "provider.example:8080")]
    found = json.loads((await rig.call("GET", "/metrics/targets", headers=host)).body)
    path = f"/metrics/replicas/{instance.name}"
    labels = {"function_name": "fn.openfaas-fn", "instance": instance.name}
    assert [
        {"targets": ["provider.example:8080"], "labels": {**labels, "__metrics_path__": path}}
    ] == found
    answer = await rig.call("GET", path)
    assert (200, b"text/plain; version=0.0.4; charset=utf-8") == (
        answer.status,
        answer.header(b"content-type"),
    )
    assert "/metrics" == json.loads(answer.body)["target"]
    assert 404 == (await rig.call("GET", f"{path}0")).status


@story(STAGE)
async def test_failed_folder_creation_is_retried(rig: Rig) -> None:
    """A function whose folder cannot be made, as on a full disk, says so and starts once it can."""
    blocks = [rig.backend.run_dir / str(number) for number in range(4)]
    for block in blocks:
        block.write_text("in the way")
    await rig.deploy("fn", ready=False)
    (instance,) = rig.instances("fn")
    await wait_until_async(lambda: instance.failing, what="fn failing")
    assert "cannot create" in instance.reason
    assert b"cannot create" in (await rig.call("GET", "/function/fn")).body
    for block in blocks:
        block.unlink()
    await rig.ready("fn")


@pytest.mark.slow
@story(STAGE)
async def test_secret_named_twice_is_mounted_once(rig: Rig) -> None:
    """A secret that is named twice is mounted once, also after a restart."""
    assert 202 == (await rig.call("POST", "/system/secrets", {"name": "key", "value": "x"})).status
    await rig.deploy("fn", secrets=["key", "key"])
    (instance,) = rig.instances("fn")
    pid = pid_of(instance)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await wait_until_async(lambda: pid_of(instance) not in (0, pid), what="another run")
    await rig.ready("fn")
    status = json.loads((await rig.call("GET", "/system/function/fn")).body)
    assert ["key"] == status["secrets"]


@story(STAGE)
async def test_environment_of_an_instance(rig: Rig) -> None:
    """An instance gets its function's settings and none of the provider's own environment."""
    os.environ["carpool_batch_max"] = "999"
    os.environ["PROVIDER_ONLY"] = "x"
    try:
        labels = {"com.carpool.slo": "200ms", "com.carpool.cpu": "1.5", "other": "x"}
        await rig.deploy("fn", labels=labels, envVars={"mine": "1", "fprocess": "not this"})
        document = await environment(rig)
    finally:
        del os.environ["carpool_batch_max"], os.environ["PROVIDER_ONLY"]
    env = document["env"]
    assert {
        "carpool_slo": "200ms",
        "carpool_cpu": "1.5",
        "OMP_NUM_THREADS": "1",
        "mine": "1",
        "fprocess": "the command",
        "OPENFAAS_NAME": "fn",
        "OPENFAAS_NAMESPACE": "openfaas-fn",
    }.items() <= env.items()
    assert set() == {"PROVIDER_ONLY", "carpool_batch_max"} & set(env)
    assert str(Path(sys.executable).parent) == env["PATH"].split(os.pathsep)[0]
    assert str(rig.folder / "context") == document["cwd"]
    assert env["sidecar_listen"] == f"unix:{env['TMPDIR']}/s"
    assert 0o700 == os.stat(env["TMPDIR"]).st_mode & 0o777  # noqa: PTH116


@story(STAGE)
async def test_unassembled_image_cannot_be_deployed(rig: Rig) -> None:
    """An image that was not assembled, or that has no command, cannot be deployed."""
    cases = {
        f"{IMAGE}x": f"expected one of the images bare, {IMAGE}; did you mean '{IMAGE}'?",
        "bare": "envProcess = '': expected the handler's command",
    }
    for image, expected in cases.items():
        document = {"service": "fn", "image": image}
        answer = await rig.call("POST", "/system/functions", document)
        assert 400 == answer.status
        assert expected in json.loads(answer.body)["error"]


@story(STAGE)
async def test_command_of_deployment_overrides_template(rig: Rig) -> None:
    """The deployment's command overrides the template's."""
    await rig.deploy("fn", envProcess="python own.py")
    assert "python own.py" == (await environment(rig))["env"]["fprocess"]


@story(STAGE)
async def test_available_only_when_ready(rig: Rig) -> None:
    """``availableReplicas`` counts an instance only once it reports that it is ready."""
    await rig.deploy("fn", ready=False, envVars={"ready_after": "3600"})
    (instance,) = rig.instances("fn")
    await wait_until_async(lambda: instance.reason == "loading")
    status = json.loads((await rig.call("GET", "/system/function/fn")).body)
    assert (1, 0) == (status["replicas"], status["availableReplicas"])
    os.kill(pid_of(instance), signal.SIGUSR1)
    await rig.ready("fn")
    status = json.loads((await rig.call("GET", "/system/function/fn")).body)
    assert (1, 1) == (status["replicas"], status["availableReplicas"])


@pytest.mark.slow
@story(STAGE)
async def test_instance_that_reports_readiness_is_probed_at_once(rig: Rig) -> None:
    """An instance that reports readiness is probed at once, in each of its runs."""
    await rig.deploy("fn")
    (instance,) = rig.instances("fn")
    assert instance.runner.on_ready == instance.probe_soon
    said = asyncio.Event()
    instance.runner.on_ready = said.set
    os.kill(pid_of(instance), signal.SIGKILL)
    await wait_until_async(said.is_set, what="what the next run says")


@story(STAGE)
async def test_killed_instance_comes_back(rig: Rig) -> None:
    """After SIGKILL an instance is restarted, and its remaining children are ended."""
    await rig.deploy("fn", envVars={"spawn": "1"})
    instance = rig.instances("fn")[0]
    first, child = pid_of(instance), int((await rig.logs("fn"))[0].split()[1])
    assert first is not None
    assert alive(child)
    os.kill(first, signal.SIGKILL)
    await wait_until_async(lambda: pid_of(instance) not in (first, 0) and instance.ready)
    assert not alive(child)
    assert ["carpool: ended with SIGKILL", "carpool: starting again in 0.1 s"] == [
        line for line in await rig.logs("fn") if line.startswith("carpool")
    ]
    assert 1 == rig.function("fn").replica_set.available


@pytest.mark.slow
def test_silent_instance_is_unavailable_and_then_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance is unavailable after one missed probe, and killed after a longer silence."""
    monkeypatch.setattr(supervised_instance, "_PROBE_TIMEOUT_S", 0.3)
    monkeypatch.setattr(supervised_instance, "_SILENCE_S", 1.5)

    @story(STAGE)
    async def play(rig: Rig) -> None:
        await rig.deploy("fn", envVars={"spawn": "1"})
        instance = rig.instances("fn")[0]
        first, child = pid_of(instance), int((await rig.logs("fn"))[0].split()[1])
        assert first is not None
        stop_process(first)
        await wait_until_async(lambda: not instance.ready, what="the missed probe")
        assert "it does not answer probes" == instance.reason
        status = json.loads((await rig.call("GET", "/system/function/fn")).body)
        assert (1, 0) == (status["replicas"], status.get("availableReplicas", 0))
        await wait_until_async(lambda: instance.ready, what="the next run")
        assert pid_of(instance) != first
        assert [False, False] == [alive(first), alive(child)]
        assert "carpool: no answer to any probe for 1.5 s: killed" in await rig.logs("fn")

    play(tmp_path)


def test_briefly_stopped_instance_is_not_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance that is stopped for a moment is unavailable meanwhile and is not restarted."""
    monkeypatch.setattr(supervised_instance, "_PROBE_TIMEOUT_S", 0.3)

    @story(STAGE)
    async def play(rig: Rig) -> None:
        await rig.deploy("fn")
        instance = rig.instances("fn")[0]
        pid = pid_of(instance)
        assert pid is not None
        stop_process(pid)
        await wait_until_async(lambda: not instance.ready, what="the missed probe")
        os.kill(pid, signal.SIGCONT)
        await wait_until_async(lambda: instance.ready, what="its answer")
        assert pid == pid_of(instance)

    play(tmp_path)


@story(STAGE)
async def test_stop_is_sigterm_then_sigkill(rig: Rig) -> None:
    """An instance that ignores SIGTERM is killed after its grace period, with its children."""
    await rig.deploy("fn", envVars={"deaf": "1", "spawn": "1"})
    instance = rig.instances("fn")[0]
    child, log = int((await rig.logs("fn"))[0].split()[1]), rig.function("fn").replica_set.log
    pid = pid_of(instance)
    assert pid is not None
    await rig.call("POST", "/system/scale-function/fn", {"replicas": 0})
    await wait_until_async(lambda: not rig.function("fn").replica_set.replicas)
    assert [False, False] == [alive(pid), alive(child)]
    assert "carpool: still running 3 s after SIGTERM: killed" in [x.text for x in log.since(0)]
    assert not (rig.backend.run_dir / "1").exists()


@story(STAGE)
async def test_instance_that_prints_too_much_loses_lines(rig: Rig) -> None:
    """An instance that prints too much loses lines instead of delaying calls."""
    await rig.deploy("fn")
    log = rig.function("fn").replica_set.log
    log._max_lines = 1_000_000  # on a slow machine more are kept than it has room for
    assert 200 == (await rig.call("POST", "/function/fn/print", b"x\n" * 200_000)).status

    def told() -> list[str]:
        return [line.text for line in log.since(0) if "lines were dropped" in line.text]

    async def told_after_a_line() -> bool:
        await rig.call("POST", "/function/fn/print", b"afterwards")
        return bool(told())

    while not await told_after_a_line():
        pass
    await rig.printed("fn", "afterwards")
    dropped = sum(int(text.split()[1]) for text in told())
    assert log.next < 200_000 < dropped + log.next + 10_000


@pytest.mark.slow
@story(STAGE)
async def test_instance_between_two_starts_is_stopped_at_once(rig: Rig) -> None:
    """An instance between two starts is stopped at once."""
    await rig.deploy("fn", ready=False, envVars={"refuse": "1"})
    await wait_until_async(lambda: rig.instances("fn")[0].failing)
    await rig.call("POST", "/system/scale-function/fn", {"replicas": 0})
    await wait_until_async(lambda: not rig.function("fn").replica_set.replicas)


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
    deployment = Deployment("fn", "img", env_vars={"spawn": "1", "deaf": "1"})
    function = await LocalOrchestrator(backend, secrets).deploy(deployment)
    while not function.replica_set.available:
        await asyncio.sleep(0.01)
    print(backend.run_dir, flush=True)
    await asyncio.Event().wait()

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes through /proc")
def test_nothing_outlives_a_killed_provider(tmp_path: Path) -> None:
    """When the provider is killed, its instances, their children and its folder go, too."""
    provider = subprocess.Popen(
        [sys.executable, "-c", PROVIDER, str(tmp_path), *INSTANCE],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert provider.stdout is not None
    run_dir = provider.stdout.readline().decode().strip()
    assert 2 == len(leftovers.marked(f"TMPDIR={run_dir}"))  # the instance and the child it spawned
    provider.kill()
    provider.wait()
    provider.stdout.close()
    wait_until(lambda: not leftovers.marked(f"TMPDIR={run_dir}") and not Path(run_dir).exists())


def _can_isolate() -> bool:
    command = network_namespace.command((sys.executable, "-c", ""))
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def fwatchdog_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put any program with the watchdog's name on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "fwatchdog").symlink_to(shutil.which("true") or "/bin/true")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.slow
@pytest.mark.skipif(not _can_isolate(), reason="no network namespaces here")
@pytest.mark.usefixtures("fwatchdog_on_path")
def test_watchdogs_have_separate_networks(tmp_path: Path) -> None:
    """Two instances that bind the watchdog's fixed port run side by side and can be reached."""

    @story(STAGE)
    async def play(rig: Rig) -> None:
        await rig.deploy("fn", envVars={"watchdog_port": "1"})
        await rig.call("POST", "/system/scale-function/fn", {"replicas": 2})
        await rig.ready("fn", 2)
        assert 200 == (await rig.call("GET", "/function/fn")).status
        assert "sidecar_watchdog" not in (await environment(rig))["env"]
        assert "each instance in a network namespace" == rig.backend.notes[-1][13:49]

    (tmp_path / "p").mkdir()
    play(tmp_path / "p")


@pytest.mark.usefixtures("fwatchdog_on_path")
def test_no_watchdog(tmp_path: Path) -> None:
    """Without the watchdog, instances use the machine's network."""

    @story(STAGE, watchdog=False)
    async def play(rig: Rig) -> None:
        await rig.deploy("fn")
        instance = rig.instances("fn")[0]
        assert "off" == (await environment(rig))["env"]["sidecar_watchdog"]
        assert network("self") == network(pid_of(instance))

    (tmp_path / "p").mkdir()
    play(tmp_path / "p")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
@pytest.mark.skipif(not _can_isolate(), reason="no network namespaces here")
def test_unprivileged_user_gets_namespace_in_user_namespace() -> None:
    """Without privileges, the namespace is made in a user namespace, as the same user."""
    code = (
        "import os, socket; s = socket.create_server(('127.0.0.1', 8081));"
        "socket.create_connection(s.getsockname()); print(os.getuid())"
    )
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("no system Python, which an ordinary user may run")
    _, *rest = network_namespace.command((python, "-I", "-S", "-c", code))
    nobody: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}
    result = subprocess.run([python, *rest], capture_output=True, check=False, **nobody)
    if b"Permission denied" in result.stderr or b"unshare" in result.stderr:
        pytest.skip("an ordinary user may not read this folder, or make user namespaces")
    assert (b"65534\n", b"") == (result.stdout, result.stderr)
