"""Tests of pulling images ahead of time: which images, on which nodes, and with which logins."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import uvloop

from faas_stack.provider.deployment import Deployment
from faas_stack.provider.kubernetes.image_pulls import ImagePulls, daemon_sets
from faas_stack.provider.kubernetes.manifests import manifest, read_function
from faas_stack.provider.kubernetes.names import MANAGED
from faas_stack.provider.kubernetes.namespaces import Namespaces
from faas_stack.provider.kubernetes.options import KubernetesOptions
from tests.charts.objects import violations
from tests.faas_stack.kubernetes.scripted_cluster import (
    NAMESPACE,
    ScriptedCluster,
    answer,
    connected,
    orchestrated,
    refuse,
)
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

    from carpool.http.server import Exchange
    from faas_stack.provider.kubernetes.manifests import StoredFunction

OPTIONS = KubernetesOptions(image_pull_policy="IfNotPresent", prepull=True)
TEAM = "/apis/apps/v1/namespaces/team"
OLD = {"metadata": {"name": "old", "labels": MANAGED}}
SETS = "/apis/apps/v1/namespaces/openfaas-fn/daemonsets"


def deployment(name: str, image: str, **fields: Any) -> Deployment:
    """Return the deployment of a function."""
    return Deployment.from_json(json.dumps({"service": name, "image": image, **fields}).encode())


def stored(name: str, image: str, **fields: Any) -> StoredFunction:
    """Return a function as a Deployment stores it; its secret ``login`` is a registry login."""
    document = manifest(deployment(name, image, **fields), 1, name, OPTIONS, ["login"])
    given = {"uid": name, "resourceVersion": "7", "creationTimestamp": "2026-01-02T03:04:05Z"}
    document["metadata"] |= given
    return read_function(document)


def sets(*functions: StoredFunction) -> list[dict[str, Any]]:
    """Return the DaemonSets of functions, without their names."""
    found = daemon_sets(functions, "openfaas-fn", OPTIONS)
    assert [each["metadata"]["name"] for each in found.values()] == list(found)
    return list(found.values())


def pod(daemon_set: dict[str, Any]) -> dict[str, Any]:
    """Return the pod spec of a DaemonSet."""
    found: dict[str, Any] = daemon_set["spec"]["template"]["spec"]
    return found


def test_each_image_has_a_sleeping_container() -> None:
    """Each image has one sleeping container that passes ``restricted`` and requests little."""
    (only,) = sets(stored("a", "one:1"), stored("a--b8-c1", "one:1"), stored("b", "two:1"))
    spec = pod(only)
    assert ["one:1", "two:1"] == [each["image"] for each in spec["containers"]]
    assert 2 == len({each["name"] for each in spec["containers"]})
    assert [] == violations(spec)
    for each in spec["containers"]:
        assert ["sleep", "infinity"] == each["command"]
        assert ("IfNotPresent", "1m") == (
            each["imagePullPolicy"],
            each["resources"]["requests"]["cpu"],
        )
    assert "imagePullSecrets" not in spec
    assert "nodeSelector" not in spec


def test_constraints_have_separate_daemonsets() -> None:
    """Functions with other constraints have their own DaemonSet, with their registry logins."""
    plain, gpu = sets(
        stored("a", "one:1"),
        stored("b", "two:1", constraints=["kind=gpu"], secrets=["login", "key"]),
    )
    assert "nodeSelector" not in pod(plain)
    assert ({"kind": "gpu"}, [{"name": "login"}]) == (
        pod(gpu)["nodeSelector"],
        pod(gpu)["imagePullSecrets"],
    )
    assert plain["spec"]["selector"] != gpu["spec"]["selector"]


def test_no_daemonset_without_functions() -> None:
    """Without functions there is no DaemonSet."""
    assert [] == sets()


def test_daemonset_follows_functions(tmp_path: Path) -> None:
    """A DaemonSet is created, changed and removed with the functions."""

    async def scene() -> None:
        cluster = ScriptedCluster()
        async with orchestrated(cluster, tmp_path, OPTIONS) as orchestrator:

            def images() -> list[list[str]]:
                found = [each for path, each in cluster.objects.items() if path.startswith(SETS)]
                return [[c["image"] for c in pod(each)["containers"]] for each in found]

            await orchestrator.deploy(deployment("a", "one:1"))
            await wait_until_async(lambda: images() == [["one:1"]])
            await orchestrator.deploy(deployment("b", "two:1"))
            await wait_until_async(lambda: images() == [["one:1", "two:1"]])
            for name in "ab":
                await orchestrator.remove(name, "openfaas-fn")
            await wait_until_async(lambda: images() == [])

    uvloop.run(scene())


def test_missing_permission_is_logged_and_functions_are_deployed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A missing permission to pull images is logged, and functions are still deployed."""

    async def scene() -> None:
        cluster = ScriptedCluster()
        cluster.first["GET", SETS] = [lambda e: refuse(e, 403, "Forbidden", "not allowed")]
        async with orchestrated(cluster, tmp_path, OPTIONS) as orchestrator:
            await orchestrator.deploy(deployment("a", "one:1"))
            await wait_until_async(lambda: "images of openfaas-fn are not pulled" in caplog.text)
            assert "not allowed" in caplog.text
            assert f"{NAMESPACE}/services/a" in cluster.objects

    uvloop.run(scene())


@asynccontextmanager
async def pulling(
    cluster: ScriptedCluster, folder: Path, believed_s: float = 300.0
) -> AsyncIterator[tuple[ImagePulls, Namespaces]]:
    """Open image pulls for ``openfaas-fn`` and ``team`` that only act when ``look`` is called."""
    cluster.put(
        "/api/v1/namespaces/team", {"metadata": {"name": "team", "labels": {"openfaas": "1"}}}
    )
    async with connected(cluster, folder) as api:
        namespaces = Namespaces(api, "openfaas-fn")
        await namespaces.open()
        yield ImagePulls(api, namespaces, OPTIONS, believed_s), namespaces
        await namespaces.close()


def test_daemonsets_of_unlisted_namespace_are_kept(tmp_path: Path) -> None:
    """The DaemonSets of a namespace that is not listed yet are kept.

    It may have functions, whose images nodes would have to pull again.
    """

    async def scene() -> None:
        cluster = ScriptedCluster()
        cluster.put(f"{TEAM}/daemonsets/old", OLD)
        refusals = [lambda e: refuse(e, 500, "InternalError")] * 100
        cluster.first["GET", f"{TEAM}/deployments"] = list(refusals)
        async with pulling(cluster, tmp_path) as (pulls, _):
            assert await pulls.look()
            assert f"{TEAM}/daemonsets/old" in cluster.objects
            cluster.first.clear()
            watched = f"{TEAM}/deployments"
            await wait_until_async(lambda: watched in cluster.watchers, what="the list")
            assert await pulls.look()
            assert f"{TEAM}/daemonsets/old" not in cluster.objects

    uvloop.run(scene())


def test_refusal_in_removed_namespace_is_not_a_failure(tmp_path: Path) -> None:
    """A refusal in a removed namespace is no longer reported as a failure."""

    async def scene() -> None:
        cluster = ScriptedCluster()
        cluster.first["GET", f"{TEAM}/daemonsets"] = [lambda e: refuse(e, 403, "Forbidden")]
        async with pulling(cluster, tmp_path) as (pulls, namespaces):
            assert not await pulls.look()
            spaces = "/api/v1/namespaces"
            await wait_until_async(lambda: spaces in cluster.watchers, what="the watch")
            gone = {"metadata": {"name": "team", "resourceVersion": "900"}}
            cluster.tell(spaces, "DELETED", gone)
            cluster.put(f"{TEAM}/daemonsets/old", OLD)
            cluster.first["GET", f"{TEAM}/daemonsets"] = [lambda e: refuse(e, 403, "Forbidden")]
            await wait_until_async(lambda: namespaces.get("team") is None, what="its end")
            assert await pulls.look()

    uvloop.run(scene())


def test_unexpected_response_is_logged_and_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An unexpected response is logged and retried, and does not affect other namespaces."""

    def odd(exchange: Exchange) -> bool:
        answer(exchange, {})
        return True

    async def scene() -> None:
        cluster = ScriptedCluster()
        cluster.put(f"{TEAM}/daemonsets/old", OLD)
        cluster.first["GET", SETS] = [odd]
        async with pulling(cluster, tmp_path) as (pulls, _):
            assert not await pulls.look()
            assert "images of openfaas-fn are not pulled: KeyError" in caplog.text
            assert f"{TEAM}/daemonsets/old" not in cluster.objects
            assert await pulls.look()

    uvloop.run(scene())


def test_daemonset_removed_by_another_provider_is_no_failure(tmp_path: Path) -> None:
    """A DaemonSet that another provider has already removed is no failure."""

    async def scene() -> None:
        cluster = ScriptedCluster()
        cluster.put(f"{TEAM}/daemonsets/old", OLD)
        gone = [lambda e: refuse(e, 404, "NotFound")]
        cluster.first["DELETE", f"{TEAM}/daemonsets/old"] = list(gone)
        async with pulling(cluster, tmp_path) as (pulls, _):
            assert await pulls.look()
        assert 1 == cluster.requests("DELETE", f"{TEAM}/daemonsets/old")

    uvloop.run(scene())


def test_daemonset_removed_by_others_is_created_again(tmp_path: Path) -> None:
    """A DaemonSet that was removed by another client is created again."""

    async def scene() -> None:
        cluster = ScriptedCluster()
        document = manifest(deployment("a", "one:1"), 1, "a", OPTIONS, [])
        cluster.put(f"{TEAM}/deployments/a", document)
        async with pulling(cluster, tmp_path, believed_s=0.0) as (pulls, _):
            assert await pulls.look()
            (name,) = (each for each in cluster.objects if "/daemonsets/" in each)
            del cluster.objects[name]
            assert await pulls.look()
            assert name in cluster.objects

    uvloop.run(scene())
