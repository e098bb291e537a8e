"""Tests that watches survive failed logins, unreadable objects and truncated lines."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from carpool.errors import Overloaded
from faas_stack.provider.kubernetes.api_server import ApiServer, Lines
from faas_stack.provider.kubernetes.namespaces import Namespaces
from faas_stack.provider.kubernetes.watch import Watch
from tests.faas_stack.kubernetes.scripted_cluster import (
    DEPLOYMENTS,
    NAMESPACE,
    ScriptedCluster,
    connected,
    keep_in,
    refuse,
)
from tests.faas_stack.kubernetes.test_manifests import made, stored
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from carpool.http.server import Exchange

PODS = f"{NAMESPACE}/pods"
LOGIN = "exec: {{apiVersion: {version}, command: '{command}'}}"


def play(
    folder: Path, scene: Callable[[ScriptedCluster, ApiServer], Awaitable[None]], **user: str
) -> None:
    """Run a scene with a scripted cluster and a connection to it."""

    async def run() -> None:
        cluster = ScriptedCluster()
        async with connected(cluster, folder, **user) as api:
            await scene(cluster, api)

    uvloop.run(run())


def pod(name: str) -> dict[str, Any]:
    """Return a minimal pod object."""
    return {"metadata": {"name": name}}


def test_unreadable_object_does_not_hide_others(tmp_path: Path) -> None:
    """An unreadable object does not hide the other functions, whether listed or added later."""

    async def scene(cluster: ScriptedCluster, api: ApiServer) -> None:
        odd = stored(made())
        odd["metadata"]["annotations"]["com.carpool/deployment"] = "[]"
        cluster.put(f"{DEPLOYMENTS}/odd", odd)
        cluster.put(f"{DEPLOYMENTS}/fn", stored(made()))
        namespaces = Namespaces(api, "openfaas-fn")
        await namespaces.open()
        functions = namespaces.find("openfaas-fn").functions
        assert ["fn"] == list(functions)
        await wait_until_async(lambda: DEPLOYMENTS in cluster.watchers, what="the watch")
        cluster.put(f"{DEPLOYMENTS}/odd", odd)
        cluster.put(f"{DEPLOYMENTS}/fn2", stored(made(service="fn2"), uid="u2"))
        await wait_until_async(lambda: {"fn", "fn2"} == set(functions), what="the new function")
        assert 1 == cluster.requests("GET", f"{DEPLOYMENTS}") - 1  # one list, one watch
        await namespaces.close()

    play(tmp_path, scene)


def test_truncated_line_causes_new_list(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A truncated line causes a new list, and the log says that the watch goes on."""

    async def scene(cluster: ScriptedCluster, api: ApiServer) -> None:
        known: set[str] = set()
        watch = Watch(api, PODS, "", lambda found: str(found["metadata"]["name"]))
        await watch.first()
        task = asyncio.ensure_future(watch.follow(known.update, known.add, known.discard))
        await wait_until_async(lambda: PODS in cluster.watchers, what="the watch")
        cluster.watchers[PODS][0].write(b'{"type": "ADDED", "obj')
        cluster.end_watches()
        cluster.put(f"{PODS}/a", pod("a"))
        await wait_until_async(lambda: {"a"} == known, what="the list")
        await wait_until_async(lambda: not watch.failed, what="the next watch")
        assert not task.done()
        task.cancel()

    with caplog.at_level(logging.WARNING):
        play(tmp_path, scene)
    assert f"watching {PODS} failed" in caplog.text
    assert f"watching {PODS} again" in caplog.text


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1", "v1"])
def test_watch_resumes_after_failed_login(tmp_path: Path, version: str) -> None:
    """Requests give the reason of a failed login, and the watch resumes once there is a token.

    The login program is called with the API version of the kubeconfig and answers only in that one.
    """
    script, api_version = tmp_path / "login", f"client.authentication.k8s.io/{version}"
    credential = {
        "apiVersion": api_version,
        "kind": "ExecCredential",
        "status": {"token": "secret"},
    }
    fails = "#!/bin/sh\nexit 3\n"
    asked = f"""case $KUBERNETES_EXEC_INFO in *'"{api_version}"'*) ;; *) exit 4 ;; esac"""
    works = f"#!/bin/sh\n{asked}\necho '{json.dumps(credential)}'\n"

    async def scene(cluster: ScriptedCluster, api: ApiServer) -> None:
        with pytest.raises(Overloaded, match=r"no credentials for the API server.*returned 3"):
            await api.get(f"{PODS}/a")
        cluster.put(f"{PODS}/a", pod("a"))
        known: set[str] = set()
        watch = Watch(api, PODS, "", lambda found: str(found["metadata"]["name"]))
        task = asyncio.ensure_future(watch.follow(known.update, known.add, known.discard))
        await wait_until_async(lambda: "no credentials" in watch.failed, what="the failure")
        script.write_text(works)
        await wait_until_async(lambda: {"a"} == known and not watch.failed, what="the login")
        assert not task.done()
        task.cancel()

    script.write_text(fails)
    script.chmod(0o755)
    play(tmp_path, scene, user=LOGIN.format(version=api_version, command=script))


def test_namespace_that_loses_label_during_listing_is_not_watched(tmp_path: Path) -> None:
    """A namespace that loses its label while it is being listed is not watched."""

    async def scene(cluster: ScriptedCluster, api: ApiServer) -> None:
        namespaces = Namespaces(api, "openfaas-fn")
        await namespaces.open()
        watched = "/api/v1/namespaces"
        await wait_until_async(lambda: watched in cluster.watchers, what="the watch")
        team = "/apis/apps/v1/namespaces/team/deployments"
        late: list[Exchange] = []
        cluster.first["GET", team] = [keep_in(late)]
        cluster.tell(watched, "ADDED", {"metadata": {"name": "team", "resourceVersion": "90"}})
        await wait_until_async(lambda: bool(late), what="the list")
        cluster.tell(watched, "DELETED", {"metadata": {"name": "team", "resourceVersion": "91"}})
        await wait_until_async(lambda: namespaces.get("team") is None, what="its end")
        late[0].reply(200, b'{"metadata": {"resourceVersion": "92"}, "items": []}')
        cluster.tell(watched, "ADDED", {"metadata": {"name": "team2", "resourceVersion": "93"}})
        of_team2 = "/apis/apps/v1/namespaces/team2/deployments"
        await wait_until_async(lambda: of_team2 in cluster.watchers, what="another's watch")
        pods = "/api/v1/namespaces/team/pods"
        await wait_until_async(lambda: cluster.requests("GET", pods) > 0, what="its pods")
        for _ in range(3):
            await api.get(f"{NAMESPACE}/pods")
        assert team not in cluster.watchers
        assert pods not in cluster.watchers
        await namespaces.close()

    play(tmp_path, scene)


@pytest.mark.parametrize("kind", ["deployments", "pods"])
def test_namespace_is_listed_again_after_failure(tmp_path: Path, kind: str) -> None:
    """A namespace's functions and pods become known even if one of the lists fails at first."""
    team = {
        "deployments": "/apis/apps/v1/namespaces/team/deployments",
        "pods": "/api/v1/namespaces/team/pods",
    }

    async def scene(cluster: ScriptedCluster, api: ApiServer) -> None:
        cluster.put(
            "/api/v1/namespaces/team", {"metadata": {"name": "team", "labels": {"openfaas": "1"}}}
        )
        cluster.put(f"{team['deployments']}/fn", stored(made()))
        cluster.first["GET", team[kind]] = [lambda e: refuse(e, 500, "InternalError")]
        namespaces = Namespaces(api, "openfaas-fn")
        await namespaces.open()
        found = namespaces.find("team")
        await wait_until_async(lambda: ["fn"] == list(found.functions), what="the function")
        await wait_until_async(lambda: set(team.values()) <= set(cluster.watchers), what="both")
        await namespaces.close()

    play(tmp_path, scene)


def test_lines_are_cut_at_maximum_length() -> None:
    """Lines are cut at the maximum length, however the stream is divided."""
    text = b"ab\n\nabcdefgh\nxy\nend"
    for size in range(1, len(text) + 1):
        lines = Lines(4)
        found = [
            line
            for start in range(0, len(text), size)
            for line in lines.feed(text[start : start + size])
        ]
        assert [b"ab", b"", b"abcd", b"xy", b"end"] == [*found, lines.take()], size
