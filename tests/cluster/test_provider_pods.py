"""The provider and a real kubelet: the fate of pods, and how it is reported."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import requests

from faas_stack.provider.kubernetes.pod_state import DELETION_COST
from tests.cluster import instance_image
from tests.cluster.providers import play, provider
from tests.faas_stack.rig import IMAGE
from tests.tools import require_tool
from tests.waiting import HANG_S, wait_until, wait_until_async

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.cluster.cluster import Cluster
    from tests.faas_stack.rig import Rig

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def instances(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """A cluster whose node has the scripted instance's image."""
    cluster.load_image(instance_image.archive(tmp_path_factory.mktemp("instance")))
    return cluster


def told(cluster: Cluster, scene: Callable[[Rig], Any], **options: Any) -> None:
    """Run a scene in a new namespace, with images that the node has."""
    options.setdefault("namespace", cluster.namespace())
    play(cluster.kubeconfig, scene, image_pull_policy="IfNotPresent", **options)


async def status(rig: Rig, name: str = "fn") -> dict[str, Any]:
    """Return the status of a function."""
    document: dict[str, Any] = json.loads((await rig.call("GET", f"/system/function/{name}")).body)
    return document


async def reason(rig: Rig, part: str) -> str:
    """Wait until a function's status has a reason that contains ``part``, and return it."""
    async with asyncio.timeout(HANG_S):
        while True:
            said = (await status(rig))["annotations"].get("kubernetes.reason", "")
            if part in said:
                return str(said)
            await asyncio.sleep(0.1)


def test_logs_of_pods(instances: Cluster) -> None:
    """Logs are in order of time over all pods, and are limited by tail, since and instance."""

    async def scene(rig: Rig) -> None:
        await rig.deploy("fn")
        for text in (b"one", b"two", b"three"):
            await rig.call("POST", "/function/fn/print", text)
        await rig.printed("fn", "three")
        answer = await rig.call("GET", "/system/logs?name=fn")
        lines = [json.loads(line) for line in answer.body.splitlines()]
        assert ["one", "two", "three"] == [line["text"] for line in lines]
        (pod,) = rig.instances("fn")
        assert {("fn", pod.name)} == {(line["name"], line["instance"]) for line in lines}
        assert ["three"] == await rig.logs("fn", "&tail=1")
        since = lines[1]["timestamp"].replace("+00:00", "Z")
        assert ["two", "three"] == await rig.logs("fn", f"&since={since}")
        assert [] == await rig.logs("fn", "&instance=other")
        async with rig.client.stream("GET", "/system/logs?name=fn&follow=1&tail=1") as followed:
            chunks = followed.chunks()
            assert "three" == json.loads(await anext(chunks))["text"]
            await rig.call("POST", "/system/scale-function/fn", {"replicas": 2})
            await rig.ready("fn", 2)
            seen = set[str]()
            while len(seen) < 2:  # a pod that came later is followed, too
                await rig.call("POST", "/function/fn/print", b"more")
                seen.add(json.loads(await anext(chunks))["instance"])

    told(instances, scene)


def test_status_has_reason_for_unavailable_image(instances: Cluster) -> None:
    """Status and log have the kubelet's reason; a call fails at once, without the reason."""

    async def scene(rig: Rig) -> None:
        document = {"service": "fn", "image": "127.0.0.1:9/no/such:1"}
        assert 202 == (await rig.call("POST", "/system/functions", document)).status
        assert "127.0.0.1:9/no/such:1" in await reason(rig, "ImagePullBackOff")
        assert any("ImagePullBackOff" in line for line in await rig.logs("fn"))
        answer = await rig.call("GET", "/function/fn")
        assert (503, False) == (answer.status, b"ImagePullBackOff" in answer.body)
        await rig.call("PUT", "/system/functions", {"service": "fn", "image": IMAGE})
        assert 200 == (await rig.call("GET", "/function/fn")).status
        assert {} == (await status(rig))["annotations"]

    told(instances, scene)


def test_status_says_how_crashing_function_ended(instances: Cluster) -> None:
    """The status says how it ended, and the log has its last output."""

    async def scene(rig: Rig) -> None:
        await rig.deploy("fn", ready=False, envVars={"refuse": "1"})
        answer = await rig.call("GET", "/function/fn")
        assert 503 == answer.status
        assert b"keeps failing to start" in answer.body
        assert "ended with 3" in await reason(rig, "CrashLoopBackOff")
        assert "I do not want to start" in await rig.logs("fn")

    told(instances, scene)


def test_a_quota_that_leaves_no_room(instances: Cluster) -> None:
    """The Deployment is stored, and the status, but no caller, gets the reason for missing pods."""
    space = instances.namespace()
    path = f"/api/v1/namespaces/{space}/resourcequotas"
    instances.api.post(path, {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "0"}}})

    async def scene(rig: Rig) -> None:
        await rig.deploy("fn", ready=False)
        assert "quota" in await reason(rig, "small")
        assert any("small" in line for line in await rig.logs("fn"))
        answer = await rig.call("GET", "/function/fn")
        assert (503, False) == (answer.status, b"small" in answer.body)

    told(instances, scene, namespace=space, patience_s=1.0)


def test_a_namespace_that_enforces_restricted(instances: Cluster) -> None:
    """Pods with secrets and a read-only root are admitted, and run."""
    space = instances.namespace()
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    instances.api.patch(f"/api/v1/namespaces/{space}", {"metadata": {"labels": labels}})

    async def scene(rig: Rig) -> None:
        await rig.call("POST", "/system/secrets", {"name": "key", "value": "s3cret"})
        fields: dict[str, Any] = {
            "secrets": ["key"],
            "readOnlyRootFilesystem": True,
            "envVars": {"a": "$(PATH)$$"},
        }
        await rig.deploy("fn", **fields)
        seen = json.loads((await rig.call("GET", "/function/fn")).body)
        assert {"key": "s3cret"} == seen["secrets"]
        assert ("$(PATH)$$", "fn", space) == (
            *(seen["env"]["a"], seen["env"]["OPENFAAS_NAME"]),
            seen["env"]["OPENFAAS_NAMESPACE"],
        )
        assert not [name for name in seen["env"] if name.endswith("_SERVICE_HOST")][1:]

    told(instances, scene, namespace=space)


def test_pods_that_are_killed_come_back(instances: Cluster) -> None:
    """Calls in a killed pod get 502 or a response; all others are answered by the other pods."""

    async def scene(rig: Rig) -> None:
        await rig.deploy("fn")
        await rig.call("POST", "/system/scale-function/fn", {"replicas": 2})
        await rig.ready("fn", 2)
        statuses: list[int] = []
        stop = asyncio.Event()

        async def caller() -> None:
            while not stop.is_set():
                statuses.append((await rig.call("GET", "/function/fn/slow?s=0.01")).status)

        calls = asyncio.gather(*(caller() for _ in range(4)))
        await wait_until_async(lambda: len(statuses) > 50)
        space = rig.orchestrator.default_namespace
        victim = next(instance for instance in rig.instances("fn") if instance.ready)
        pod = f"/api/v1/namespaces/{space}/pods/{victim.name}"
        await asyncio.to_thread(instances.api.delete, pod, gracePeriodSeconds=0)
        await wait_until_async(
            lambda: victim.name not in {each.name for each in rig.instances("fn")}
        )
        await rig.ready("fn", 2)
        before = len(statuses)
        await wait_until_async(lambda: len(statuses) > before + 50)
        stop.set()
        await calls
        assert {200, 502} >= set(statuses)
        assert statuses.count(502) <= 4

    told(instances, scene)


def test_the_idle_pod_goes_first(instances: Cluster) -> None:
    """Of two pods, the one without a call is marked and removed."""

    async def scene(rig: Rig) -> None:
        await rig.deploy("fn")
        await rig.call("POST", "/system/scale-function/fn", {"replicas": 2})
        await rig.ready("fn", 2)
        call = asyncio.ensure_future(rig.call("GET", "/function/fn/hang"))
        running = rig.function("fn").running
        await wait_until_async(lambda: sum(each.in_flight for each in running) == 1)
        busy = next(each for each in running if each.in_flight)
        await rig.call("POST", "/system/scale-function/fn", {"replicas": 1})
        await wait_until_async(lambda: [busy.instance] == rig.instances("fn"), what="one to go")
        assert not call.done()
        space = rig.orchestrator.default_namespace
        pods = instances.api.get(f"/api/v1/namespaces/{space}/pods")["items"]
        marks = {
            pod["metadata"]["name"]: pod["metadata"].get("annotations", {}).get(DELETION_COST)
            for pod in pods
        }
        assert None is marks[busy.instance.name]
        call.cancel()

    told(instances, scene)


def test_the_api_server_goes_away(instances: Cluster) -> None:
    """Calls are answered while the API server restarts, and later changes are noticed."""

    async def scene(rig: Rig) -> None:
        await rig.deploy("fn")
        space = rig.orchestrator.default_namespace
        async with provider(
            instances.kubeconfig, namespace=space, image_pull_policy="IfNotPresent"
        ) as other:
            restart = asyncio.get_running_loop().run_in_executor(
                None, instances.restart, "kube-apiserver"
            )
            answers = 0
            while not restart.done():
                assert 200 == (await rig.call("GET", "/function/fn")).status
                answers += 1
            await restart
            assert answers
            scaled = await _until_accepted(rig, {"replicas": 2})
            assert 202 == scaled
            await wait_until_async(lambda: other.function("fn").available == 2, what="the second")
            await rig.ready("fn", 2)

    told(instances, scene)


def test_a_node_that_is_lost(instances: Cluster) -> None:
    """Pods of a lost node are not available, the status says why, and they return with the node."""

    async def scene(rig: Rig) -> None:
        await rig.deploy("fn")
        with instances.stopped("kubelet"):
            said = await reason(rig, "NodeNotReady")
            assert said.startswith("fn-")
            assert 0 == (await status(rig))["availableReplicas"]
        await rig.ready("fn")
        assert 200 == (await rig.call("GET", "/function/fn")).status

    told(instances, scene)


async def _until_accepted(rig: Rig, document: dict[str, int]) -> int:
    """Scale ``fn``, repeatedly until the API server is available, and return the status."""
    async with asyncio.timeout(HANG_S):
        while True:
            answer = await rig.call("POST", "/system/scale-function/fn", document)
            if answer.status != 503:
                return answer.status
            await asyncio.sleep(0.1)


@contextmanager
def followed(command: Sequence[str], env: Mapping[str, str], log: Path) -> Iterator[Path]:
    """Run a command that writes to a file, and yield the file."""
    with log.open("w") as file:
        process = subprocess.Popen(command, env=env, stdout=file)
    try:
        yield log
    finally:
        process.terminate()
        process.wait(HANG_S)


def test_faas_cli(instances: Cluster, tmp_path: Path) -> None:
    """The complete flow of faas-cli works with `carpool provider kubernetes` and credentials."""
    cli = require_tool("faas-cli")
    space = instances.namespace()
    env = {**os.environ, "HOME": str(tmp_path), "OPENFAAS_CONFIG": str(tmp_path / "config")}
    command = [sys.executable, "-m", "carpool", "provider", "kubernetes", "--port", "0"]
    command += ["--namespace", space, "--kubeconfig", str(instances.kubeconfig)]
    command += ["--image-pull-policy", "IfNotPresent", "--basic-auth", str(tmp_path / "auth")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        url = next(word for word in said.split() if word.startswith("http")).rstrip(";")

        inside, of = ("--namespace", space), {"login": ()}

        def run(*words: str, given: str | None = None) -> str:
            done = subprocess.run(
                (cli, *words, "--gateway", url, *of.get(words[0], inside)),
                env=env,
                input=given,
                capture_output=True,
                text=True,
                check=False,
                timeout=HANG_S,
            )
            assert 0 == done.returncode, done.stdout + done.stderr
            return done.stdout + done.stderr

        password = (tmp_path / "auth" / "basic-auth-password").read_text()
        run("login", "--password-stdin", given=password)
        run("secret", "create", "key", "--from-literal", "s3cret")
        assert "key" in run("secret", "list")
        deploy = ("deploy", "--image", IMAGE, "--name", "fn", "--secret", "key")
        assert "202" in run(*deploy, "--label", "topic=cats")
        run("ready", "fn")
        described = run("describe", "fn")
        assert "Ready" in described
        assert "topic" in described
        assert "fn" in run("list")
        assert "s3cret" in run("invoke", "fn", given="hello")
        requests.post(f"{url}/function/fn.{space}/print", data="printed", timeout=HANG_S)
        wait_until(lambda: "printed" in run("logs", "fn", "--tail=false"), what="its log")
        follow = (cli, "logs", "fn", "--gateway", url, *inside)  # unless it is told not to
        with followed(follow, env, tmp_path / "log") as log:
            wait_until(lambda: "printed" in log.read_text(), what="what there is")
            requests.post(f"{url}/function/fn.{space}/print", data="later", timeout=HANG_S)
            wait_until(lambda: "later" in log.read_text(), what="what comes")
        assert "202" in run(*deploy, "--label", "topic=dogs")
        assert "dogs" in run("describe", "fn")
        run("secret", "update", "key", "--from-literal", "other")
        run("remove", "fn")
        run("secret", "remove", "key")
        assert "fn" not in run("list")
    finally:
        process.terminate()
        process.communicate(timeout=HANG_S)
