"""Tests of creating, changing and removing the namespaces of functions."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import uvloop

from carpool.errors import Conflict, NotFound
from faas_stack.provider.kubernetes.cluster_namespaces import ClusterNamespaces
from faas_stack.provider.kubernetes.namespaces import Namespaces
from faas_stack.provider.orchestrator import FunctionNamespace
from tests.faas_stack.kubernetes.scripted_cluster import ScriptedCluster, connected, refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LABELS = {"openfaas": "1"}
TEAM = FunctionNamespace("team", LABELS)
PATH = "/api/v1/namespaces/team"


@asynccontextmanager
async def kept(
    cluster: ScriptedCluster, folder: Path
) -> AsyncIterator[tuple[ClusterNamespaces, Namespaces]]:
    """Open the namespace store and the known namespaces of a scripted cluster."""
    async with connected(cluster, folder) as api:
        namespaces = Namespaces(api, "openfaas-fn")
        await namespaces.open()
        yield ClusterNamespaces(api, namespaces), namespaces
        await namespaces.close()


@pytest.mark.parametrize("refused", [False, True])
def test_new_namespace_is_known_at_once(tmp_path: Path, *, refused: bool) -> None:
    """A new namespace is known at once, without a watch event, even if it cannot be read yet."""

    async def scene() -> None:
        cluster = ScriptedCluster()
        if refused:
            deployments = "/apis/apps/v1/namespaces/team/deployments"
            cluster.first["GET", deployments] = [lambda e: refuse(e, 403, "Forbidden")]
        async with kept(cluster, tmp_path) as (store, namespaces):
            await store.create(TEAM)
            assert "team" == namespaces.find("team").name

    uvloop.run(scene())


def test_namespace_without_label_is_not_changed(tmp_path: Path) -> None:
    """A namespace that lost its label is not changed, even before a watch reports the loss."""

    async def scene() -> None:
        cluster = ScriptedCluster()
        cluster.put(PATH, {"metadata": {"name": "team", "labels": LABELS}})
        async with kept(cluster, tmp_path) as (store, namespaces):
            cluster.objects[PATH]["metadata"]["labels"] = {}
            assert namespaces.get("team")
            for change in (store.update(TEAM), store.remove("team")):
                with pytest.raises(NotFound, match="no namespace 'team' of functions"):
                    await change
            assert {} == cluster.objects[PATH]["metadata"]["labels"]
            with pytest.raises(Conflict, match="cannot be removed"):
                await store.remove("openfaas-fn")

    uvloop.run(scene())


def test_labelled_namespace_is_updated_and_removed(tmp_path: Path) -> None:
    """A labelled namespace is updated and removed on the API server."""

    async def scene() -> None:
        cluster = ScriptedCluster()
        cluster.put(PATH, {"metadata": {"name": "team", "labels": LABELS}})
        async with kept(cluster, tmp_path) as (store, _):
            await store.update(FunctionNamespace("team", {**LABELS, "a": "b"}))
            assert {**LABELS, "a": "b"} == cluster.objects[PATH]["metadata"]["labels"]
            await store.remove("team")
            assert PATH not in cluster.objects

    uvloop.run(scene())
