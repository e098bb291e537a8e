"""Tests of updates on a full cluster, over HTTP with a scripted cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from faas_stack.provider.kubernetes.names import REVISION
from faas_stack.provider.kubernetes.options import KubernetesOptions
from tests.faas_stack.kubernetes.scripted_cluster import ScriptedCluster, orchestrated
from tests.faas_stack.kubernetes.test_orchestrator import FN, PODS, deployment, pod
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from carpool.http.server import Exchange
    from faas_stack.provider.kubernetes.kubernetes_function import KubernetesFunction
    from faas_stack.provider.kubernetes.orchestrator import KubernetesOrchestrator

    Scene = Callable[[ScriptedCluster, KubernetesOrchestrator], Awaitable[None]]

FULL = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "Insufficient cpu",
}


def play(folder: Path, scene: Scene, patience_s: float = 0.0) -> None:
    """Run a scene with a deployed function, whose updates wait ``patience_s`` for capacity."""

    async def run() -> None:
        cluster = ScriptedCluster()
        options = KubernetesOptions(capacity_patience_s=patience_s)
        async with orchestrated(cluster, folder, options) as orchestrator:
            await orchestrator.deploy(deployment())
            await wait_until_async(lambda: PODS in cluster.watchers, what="the watch")
            await scene(cluster, orchestrator)

    uvloop.run(run())


async def half_updated(
    cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator, replicas: int
) -> KubernetesFunction:
    """Return a function whose replicas are ready while the first pod of a new image has no room."""
    function = orchestrator.find("fn", "openfaas-fn")
    await orchestrator.scale("fn", "openfaas-fn", replicas)
    for number in range(replicas):
        put(cluster, f"old-{number}", function)
    await wait_until_async(lambda: function.available == replicas, what="the pods")
    await orchestrator.update(deployment(image="img:2"))
    put(cluster, "new", function, FULL)
    await wait_until_async(lambda: len(function.pods) > replicas, what="the new pod")
    return function


def put(
    cluster: ScriptedCluster, name: str, function: KubernetesFunction, *conditions: dict[str, Any]
) -> None:
    """Store a pod of the newest revision, which is ready unless ``conditions`` are given."""
    found = pod(name)
    found["metadata"]["labels"]["com.carpool/id"] = function.stored.id
    found["metadata"]["annotations"] = {REVISION: function.stored.revision}
    if conditions:
        found["status"] = {"conditions": list(conditions)}
    cluster.put(f"{PODS}/{name}", found)


def may_lack(cluster: ScriptedCluster) -> int:
    """Return how many pods may be unavailable during an update."""
    most = cluster.objects[FN]["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"]
    assert isinstance(most, int)
    return most


def test_blocked_update_removes_one_of_several_replicas(tmp_path: Path) -> None:
    """A blocked update may remove one of several replicas, and the next update starts with all."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        function = await half_updated(cluster, orchestrator, 2)
        assert "waits for capacity for one more replica; new: Unschedulable" in function.reason
        await wait_until_async(lambda: may_lack(cluster) == 1, what="room")
        await orchestrator.update(deployment(image="img:3"))
        assert 0 == may_lack(cluster)

    play(tmp_path, scene)


def test_restart_keeps_all_replicas(tmp_path: Path) -> None:
    """A restart keeps all replicas even after an update that made room.

    With one replica it would otherwise remove the only one.
    """

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        await half_updated(cluster, orchestrator, 2)
        await wait_until_async(lambda: may_lack(cluster) == 1, what="room")
        await orchestrator.reload("fn", "openfaas-fn", 1.0)
        assert 0 == may_lack(cluster)

    play(tmp_path, scene)


def test_update_that_made_room_keeps_last_replica(tmp_path: Path) -> None:
    """An update that made room keeps the last replica when the function is scaled to one."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        function = await half_updated(cluster, orchestrator, 2)
        await wait_until_async(lambda: function.stored.gives_way, what="room")
        await orchestrator.scale("fn", "openfaas-fn", 1)
        assert 0 == may_lack(cluster)
        assert 1 == cluster.objects[FN]["spec"]["replicas"]

    play(tmp_path, scene)


def test_blocked_update_keeps_only_replica(tmp_path: Path) -> None:
    """A blocked update keeps the only replica, and the status says what the user can do."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        function = await half_updated(cluster, orchestrator, 1)
        status = function.status()
        assert (1, 1) == (status["replicas"], status["availableReplicas"])
        assert "scale to 0 and back" in status["annotations"]["kubernetes.reason"]
        for _ in range(3):
            await orchestrator.blocked_updates.look()
        assert 0 == may_lack(cluster)

    play(tmp_path, scene)


def test_no_replica_is_removed_before_patience_ends(tmp_path: Path) -> None:
    """No replica is removed before the patience is over, as room may come by itself."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        function = await half_updated(cluster, orchestrator, 2)
        assert function.blocked
        await orchestrator.blocked_updates.look()
        assert 0 == may_lack(cluster)
        put(cluster, "new", function)
        await wait_until_async(lambda: not function.blocked, what="room")
        assert "" == function.reason

    play(tmp_path, scene, patience_s=3600.0)


def test_recreate_strategy_is_left_unchanged(tmp_path: Path) -> None:
    """A ``Recreate`` strategy is left alone, as its old pods hold no capacity that new ones need.

    Another tool may have set it.
    """

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        function = await half_updated(cluster, orchestrator, 2)
        recreated = {"type": "Recreate"}
        cluster.objects[FN]["spec"]["strategy"] = recreated  # no watch has told it yet
        orchestrator.blocked_updates._patience_s = 0.0
        await orchestrator.blocked_updates.look()
        assert recreated == cluster.objects[FN]["spec"]["strategy"]
        cluster.put(FN, cluster.objects[FN])
        await wait_until_async(lambda: function.stored.gives_way, what="the watch")
        await orchestrator.reload("fn", "openfaas-fn", 1.0)
        await orchestrator.scale("fn", "openfaas-fn", 1)
        assert recreated == cluster.objects[FN]["spec"]["strategy"]

    play(tmp_path, scene, patience_s=3600.0)


def test_unreadable_object_does_not_stop_check(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An object that cannot be read is logged, and the next check makes room."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        await half_updated(cluster, orchestrator, 2)

        def unreadable(asked: Exchange) -> bool:
            asked.reply(200, b'{"spec": {}}')
            return True

        cluster.first["GET", FN] = [unreadable]
        orchestrator.blocked_updates._patience_s = 0.0
        await wait_until_async(lambda: may_lack(cluster) == 1, what="room")
        assert "a check for blocked updates failed" in caplog.text

    play(tmp_path, scene, patience_s=3600.0)


@pytest.mark.parametrize("prefix", ["com.carpool", "com.openfaas"])
def test_changed_replica_bounds_keep_revision(tmp_path: Path, prefix: str) -> None:
    """An update of the replica bounds alone keeps the revision; any other update changes it."""

    async def scene(cluster: ScriptedCluster, orchestrator: KubernetesOrchestrator) -> None:
        templates = [cluster.objects[FN]["spec"]["template"]]
        bounds = {f"{prefix}.scale.min": "2", f"{prefix}.scale.max": "9"}
        for labels in (bounds, bounds, {**bounds, "topic": "cats"}):
            await orchestrator.update(deployment(labels=labels))
            templates.append(cluster.objects[FN]["spec"]["template"])
        first, bounded, again, other = templates
        assert first == bounded
        assert len({revision(each) for each in (first, again, other)}) == 3
        function = orchestrator.find("fn", "openfaas-fn")
        assert (2, {**bounds, "topic": "cats"}) == (function.replicas, function.deployment.labels)

    play(tmp_path, scene)


def revision(template: dict[str, Any]) -> str:
    """Return the revision, whose change makes Kubernetes replace pods."""
    return str(template["metadata"]["annotations"][REVISION])
