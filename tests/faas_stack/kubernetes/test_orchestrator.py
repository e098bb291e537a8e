"""Changes of functions by several providers at once: over HTTP, against a scripted cluster."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from carpool.errors import Conflict, NotFound, Overloaded
from faas_stack.provider.deployment import Deployment
from faas_stack.provider.kubernetes.api_errors import Forbidden
from faas_stack.provider.kubernetes.names import ID, MANAGED, REVISION
from faas_stack.provider.kubernetes.options import KubernetesOptions
from faas_stack.provider.kubernetes.pod_state import DELETION_COST
from tests.faas_stack.kubernetes.scripted_cluster import (
    DEPLOYMENTS,
    NAMESPACE,
    ScriptedCluster,
    keep_in,
    orchestrated,
    refuse,
)
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from carpool.http.server import Exchange
    from faas_stack.provider.kubernetes.orchestrator import KubernetesOrchestrator

    Scene = Callable[[ScriptedCluster, KubernetesOrchestrator], Awaitable[None]]

FN = f"{DEPLOYMENTS}/fn"
SCALE = f"{FN}/scale"
PODS = f"{NAMESPACE}/pods"
BUDGETS = "/apis/policy/v1/namespaces/openfaas-fn/poddisruptionbudgets"


def deployment(**fields: Any) -> Deployment:
    """Of a function ``fn``."""
    return Deployment.from_json(json.dumps({"service": "fn", "image": "img", **fields}).encode())


def pod(name: str) -> dict[str, Any]:
    """A ready one whose address nothing listens at."""
    return {
        "metadata": {"name": name, "namespace": "openfaas-fn", "labels": {ID: "1d", **MANAGED}},
        "status": {"podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def play(folder: Path, scene: Scene) -> None:
    """Run a scene with a function that a second provider may change, too."""

    async def run() -> None:
        cluster = ScriptedCluster()
        options = KubernetesOptions(patience_s=0.05)
        async with orchestrated(cluster, folder, options) as orchestrator:
            await orchestrator.deploy(deployment())
            await scene(cluster, orchestrator)

    uvloop.run(run())


def scaled(cluster: ScriptedCluster, replicas: int) -> dict[str, Any]:
    """The function, as another provider scales it."""
    stored = cluster.objects[FN]
    return cluster.put(FN, {**stored, "spec": {**stored["spec"], "replicas": replicas}})


def unseen(cluster: ScriptedCluster, replicas: int) -> None:
    """Another provider scales the function; the watch has not told it yet."""
    watchers, cluster.watchers = cluster.watchers, {}
    scaled(cluster, replicas)
    cluster.watchers = watchers


def costs(cluster: ScriptedCluster) -> dict[str, str]:
    """What the pods' deletion costs are."""
    found = {name: cluster.objects[f"{PODS}/{name}"]["metadata"] for name in "abc"}
    known = {name: each.get("annotations", {}).get(DELETION_COST) for name, each in found.items()}
    return {name: cost for name, cost in known.items() if cost}


def marks(cluster: ScriptedCluster) -> int:
    """How many pods were marked."""
    return sum(cluster.requests("PATCH", f"{PODS}/{name}") for name in "abc")


def test_a_start_from_zero_takes_nothing_away(tmp_path: Path) -> None:
    """Another provider has scaled further up meanwhile: its number stays."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        function = orchestrator.find("fn", "openfaas-fn")
        await orchestrator.scale("fn", "openfaas-fn", 0)
        unseen(cluster, 7)
        with pytest.raises(Overloaded, match="no ready replica"):
            await orchestrator.acquire(function)
        assert (7, 7) == (cluster.objects[FN]["spec"]["replicas"], function.replicas)

    play(tmp_path, scene)


def test_a_start_from_zero_of_an_old_view(tmp_path: Path) -> None:
    """What has changed meanwhile left it at zero: it is started all the same."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        function = orchestrator.find("fn", "openfaas-fn")
        await orchestrator.scale("fn", "openfaas-fn", 0)
        unseen(cluster, 0)
        with pytest.raises(Overloaded, match="no ready replica"):
            await orchestrator.acquire(function)
        assert (1, 1) == (cluster.objects[FN]["spec"]["replicas"], function.replicas)

    play(tmp_path, scene)


def test_a_start_that_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Anyone may call: what the API server says of it is in the log alone."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        function = orchestrator.find("fn", "openfaas-fn")
        await orchestrator.scale("fn", "openfaas-fn", 0)
        said = "user system:serviceaccount:x may not patch"
        cluster.first["PATCH", SCALE] = [lambda each: refuse(each, 403, "Forbidden", said)]
        with pytest.raises(Overloaded, match=r"function 'fn' cannot be started now$"):
            await orchestrator.acquire(function)
        assert said in caplog.text

    play(tmp_path, scene)


def test_an_older_reading_than_the_watchs(tmp_path: Path) -> None:
    """The answer to a change comes after the watch has told of the next: that one is right."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        function = orchestrator.find("fn", "openfaas-fn")
        late: list[Exchange] = []
        cluster.first["PATCH", SCALE] = [keep_in(late)]
        await wait_until_async(lambda: DEPLOYMENTS in cluster.watchers, what="the watch")
        call = asyncio.ensure_future(orchestrator.scale("fn", "openfaas-fn", 3))
        await wait_until_async(lambda: bool(late), what="the change")
        answered = scaled(cluster, 3)
        scaled(cluster, 5)
        await wait_until_async(lambda: 5 == function.replicas, what="the watch's word")
        late[0].reply(200, json.dumps(answered).encode())
        await call
        assert 5 == function.replicas

    play(tmp_path, scene)


def test_what_a_create_is_refused_for(tmp_path: Path) -> None:
    """A quota that changes at the same time is tried again; the others are told apart."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        with pytest.raises(Conflict, match=r"'fn' exists .* update it with PUT"):
            await orchestrator.deploy(deployment())
        cluster.put(f"{DEPLOYMENTS}/web", {"metadata": {"name": "web"}})
        with pytest.raises(Conflict, match=r"'web' exists .* does not belong to a function"):
            await orchestrator.deploy(deployment(service="web"))
        overtaken = [lambda exchange: refuse(exchange, 409, "Conflict")] * 2
        cluster.first["POST", DEPLOYMENTS] = overtaken
        assert "fn2" == (await orchestrator.deploy(deployment(service="fn2"))).deployment.service

    play(tmp_path, scene)


def test_a_role_that_knows_no_disruption_budgets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As those bound by hand for an earlier version: functions run without, and the log says so."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        refusal = [lambda exchange: refuse(exchange, 403, "Forbidden")]
        cluster.first["PATCH", f"{BUDGETS}/fn2"] = refusal
        await orchestrator.deploy(deployment(service="fn2"))
        assert f"{BUDGETS}/fn2" not in cluster.objects
        assert "no PodDisruptionBudget for fn2" in caplog.text
        await orchestrator.update(deployment(service="fn2"))
        assert f"{BUDGETS}/fn2" in cluster.objects
        cluster.first["PATCH", f"{NAMESPACE}/services/fn3"] = [
            lambda exchange: refuse(exchange, 403, "Forbidden")
        ]
        with pytest.raises(Forbidden):
            await orchestrator.deploy(deployment(service="fn3"))

    play(tmp_path, scene)


def test_an_update_that_others_overtake(tmp_path: Path) -> None:
    """It is tried again; what goes with the function is stored once."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        service = f"{NAMESPACE}/services/fn"
        before = cluster.requests("PATCH", service)
        cluster.first["PUT", FN] = [lambda exchange: refuse(exchange, 409, "Conflict")] * 3
        await orchestrator.update(deployment(image="img:2"))
        assert (4, before + 1) == (cluster.requests("PUT", FN), cluster.requests("PATCH", service))
        assert "img:2" == orchestrator.find("fn", "openfaas-fn").deployment.image

    play(tmp_path, scene)


def test_a_reload_is_a_rollout_of_what_is_there(tmp_path: Path) -> None:
    """Pods are of another revision, whatever others change meanwhile; nothing else is."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        await orchestrator.scale("fn", "openfaas-fn", 3)
        before = cluster.objects[FN]
        cluster.first["PUT", FN] = [lambda exchange: refuse(exchange, 409, "Conflict")]
        done = await orchestrator.reload("fn", "openfaas-fn", 1.0)
        assert (3, False) == done
        specs = [json.loads(json.dumps(each["spec"])) for each in (before, cluster.objects[FN])]
        revisions = {each["template"]["metadata"]["annotations"].pop(REVISION) for each in specs}
        assert 2 == len(revisions)
        assert specs[0] == specs[1]
        assert before["metadata"]["annotations"] == cluster.objects[FN]["metadata"]["annotations"]
        with pytest.raises(NotFound, match="no function 'gn'"):
            await orchestrator.reload("gn", "openfaas-fn", 1.0)

    play(tmp_path, scene)


def test_pods_are_marked_if_it_makes_a_difference(tmp_path: Path) -> None:
    """Where all are to go, or none has more calls than another, no mark says anything."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        function = orchestrator.find("fn", "openfaas-fn")
        await wait_until_async(lambda: PODS in cluster.watchers, what="the watch")
        for name in "abc":
            found = pod(name)
            found["metadata"]["labels"][ID] = function.stored.id
            cluster.put(f"{PODS}/{name}", found)
        await wait_until_async(lambda: 3 == function.available, what="the pods")
        await orchestrator.scale("fn", "openfaas-fn", 0)
        assert 0 == marks(cluster)
        await orchestrator.scale("fn", "openfaas-fn", 2)
        assert 0 == marks(cluster)
        busy = {each.instance.name: each for each in function.running}
        busy["a"].in_flight, busy["b"].in_flight = 2, 1
        await orchestrator.scale("fn", "openfaas-fn", 2)
        assert {"c": "-1"} == costs(cluster)

    play(tmp_path, scene)


def test_a_secret_that_is_a_functions_token(tmp_path: Path) -> None:
    """No function can have it, and the API of secrets neither changes nor removes it."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        path = f"{NAMESPACE}/secrets/fn.scaler-token"
        labels = {**MANAGED, ID: "1d"}
        cluster.put(path, {"metadata": {"name": "fn.scaler-token", "labels": labels}, "data": {}})
        secrets = orchestrator.secrets
        assert not await secrets.exists("fn.scaler-token", "openfaas-fn")
        with pytest.raises(NotFound, match="no secret"):
            await secrets.update("fn.scaler-token", "openfaas-fn", b"mine")
        with pytest.raises(NotFound, match="no secret"):
            await secrets.remove("fn.scaler-token", "openfaas-fn")
        assert {} == cluster.objects[path]["data"]

    play(tmp_path, scene)
