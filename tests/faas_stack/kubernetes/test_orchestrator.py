"""Tests of concurrent changes by several providers, over HTTP with a scripted cluster."""

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
from tests.waiting import HANG_S, wait_until_async

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
    """Return the deployment of a function ``fn``."""
    return Deployment.from_json(json.dumps({"service": "fn", "image": "img", **fields}).encode())


def pod(name: str) -> dict[str, Any]:
    """Return a ready pod with an address on which nothing listens."""
    return {
        "metadata": {"name": name, "namespace": "openfaas-fn", "labels": {ID: "1d", **MANAGED}},
        "status": {"podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def play(folder: Path, scene: Scene, patience_s: float = 0.05) -> None:
    """Run a scene with a function that a second provider may change, too."""

    async def run() -> None:
        cluster = ScriptedCluster()
        options = KubernetesOptions(patience_s=patience_s)
        async with orchestrated(cluster, folder, options) as orchestrator:
            await orchestrator.deploy(deployment())
            await scene(cluster, orchestrator)

    uvloop.run(run())


def scaled(cluster: ScriptedCluster, replicas: int) -> dict[str, Any]:
    """Store the function as scaled by another provider."""
    stored = cluster.objects[FN]
    return cluster.put(FN, {**stored, "spec": {**stored["spec"], "replicas": replicas}})


def unseen(cluster: ScriptedCluster, replicas: int) -> None:
    """Scale the function as another provider would, without an event for the watch."""
    watchers, cluster.watchers = cluster.watchers, {}
    scaled(cluster, replicas)
    cluster.watchers = watchers


def costs(cluster: ScriptedCluster) -> dict[str, str]:
    """Return the deletion costs of the pods that have one."""
    found = {name: cluster.objects[f"{PODS}/{name}"]["metadata"] for name in "abc"}
    known = {name: each.get("annotations", {}).get(DELETION_COST) for name, each in found.items()}
    return {name: cost for name, cost in known.items() if cost}


def marks(cluster: ScriptedCluster) -> int:
    """Return how often a pod was marked."""
    return sum(cluster.requests("PATCH", f"{PODS}/{name}") for name in "abc")


def test_start_from_zero_keeps_replica_count_set_meanwhile(tmp_path: Path) -> None:
    """A start from zero keeps the replica count that another provider has set in the meantime."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        function = orchestrator.find("fn", "openfaas-fn")
        await orchestrator.scale("fn", "openfaas-fn", 0)
        unseen(cluster, 7)
        with pytest.raises(Overloaded, match="no ready replica"):
            await orchestrator.acquire(function)
        assert (7, 7) == (cluster.objects[FN]["spec"]["replicas"], function.replicas)

    play(tmp_path, scene)


def test_start_from_zero_succeeds_with_outdated_state(tmp_path: Path) -> None:
    """A start from zero succeeds even if the function has changed in the meantime."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        function = orchestrator.find("fn", "openfaas-fn")
        await orchestrator.scale("fn", "openfaas-fn", 0)
        unseen(cluster, 0)
        with pytest.raises(Overloaded, match="no ready replica"):
            await orchestrator.acquire(function)
        assert (1, 1) == (cluster.objects[FN]["spec"]["replicas"], function.replicas)

    play(tmp_path, scene)


def test_waiting_call_starts_function_again_if_it_is_scaled_to_zero(tmp_path: Path) -> None:
    """A scale to zero before a pod is ready does not leave the waiting calls without one."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        function = orchestrator.find("fn", "openfaas-fn")
        await wait_until_async(lambda: PODS in cluster.watchers, what="the watch of the pods")
        await wait_until_async(lambda: DEPLOYMENTS in cluster.watchers, what="the other watch")
        call = asyncio.ensure_future(orchestrator.acquire(function))
        await asyncio.sleep(0)  # it waits for a pod
        scaled(cluster, 0)
        await wait_until_async(lambda: bool(cluster.requests("PATCH", SCALE)), what="the start")
        started = pod("a")
        started["metadata"]["labels"][ID] = function.stored.id
        cluster.put(f"{PODS}/a", started)
        assert "a" == (await call).instance.name
        assert (1, 1) == (cluster.objects[FN]["spec"]["replicas"], function.replicas)

    play(tmp_path, scene, patience_s=HANG_S)


def test_refused_start_is_logged_and_not_shown_to_caller(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The API server's reason for refusing a start is logged and not sent to the caller."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        function = orchestrator.find("fn", "openfaas-fn")
        await orchestrator.scale("fn", "openfaas-fn", 0)
        said = "user system:serviceaccount:x may not patch"
        cluster.first["PATCH", SCALE] = [lambda each: refuse(each, 403, "Forbidden", said)]
        with pytest.raises(Overloaded, match=r"function 'fn' cannot be started now$"):
            await orchestrator.acquire(function)
        assert said in caplog.text

    play(tmp_path, scene)


def test_late_response_does_not_replace_newer_state(tmp_path: Path) -> None:
    """A late response to a change does not replace a newer state that the watch has reported."""

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


def test_deployment_is_retried_after_quota_conflict(tmp_path: Path) -> None:
    """A deployment is retried after a conflicting quota change; other conflicts are told apart."""

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


def test_functions_are_deployed_without_right_to_budgets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the right to set disruption budgets, functions are deployed and a warning is logged.

    Roles that were bound by hand for an earlier version lack that right.
    """

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


def test_conflicting_update_is_retried(tmp_path: Path) -> None:
    """A conflicting update is retried, and the function's other objects are stored only once."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        service = f"{NAMESPACE}/services/fn"
        before = cluster.requests("PATCH", service)
        cluster.first["PUT", FN] = [lambda exchange: refuse(exchange, 409, "Conflict")] * 3
        await orchestrator.update(deployment(image="img:2"))
        assert (4, before + 1) == (cluster.requests("PUT", FN), cluster.requests("PATCH", service))
        assert "img:2" == orchestrator.find("fn", "openfaas-fn").deployment.image

    play(tmp_path, scene)


def test_reload_changes_only_revision(tmp_path: Path) -> None:
    """A reload changes only the revision, even if it conflicts with another change."""

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


def test_pods_are_marked_only_if_their_calls_differ(tmp_path: Path) -> None:
    """Pods are marked only if some stay and some have more calls than others."""

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


def test_secrets_api_excludes_function_tokens(tmp_path: Path) -> None:
    """A function's token is no secret for functions, and the secrets API does not change it."""

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
