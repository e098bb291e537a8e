"""A foreign cluster is used if the tests' own variable is set, and left as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.chart import Installed
from tests.cluster.cluster import Cluster, foreign
from tests.cluster.plain_nodes import make_node

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow  # it starts an API server
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterrole"


def test_a_kubeconfig_of_the_shell_is_left_alone(
    api_server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the tests' own variable names a cluster in which tests may create objects."""
    monkeypatch.delenv("CARPOOL_TEST_KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    assert foreign() is None
    monkeypatch.setenv("CARPOOL_TEST_KUBECONFIG", str(api_server.kubeconfig))
    found = foreign()
    assert found is not None
    assert api_server.api.server == found.api.server


def _there(cluster: Cluster) -> set[str]:
    """Return the names of cluster-scoped objects that are not being deleted."""
    paths = ("/api/v1/namespaces", "/api/v1/nodes", f"{ROLES}s", f"{ROLES}bindings")
    found = [each["metadata"] for path in paths for each in cluster.api.get(path)["items"]]
    return {each["name"] for each in found if "deletionTimestamp" not in each}


def test_objects_created_by_tests_are_removed(api_server: Cluster, tmp_path: Path) -> None:
    """Namespaces, roles and nodes are removed; one that a test has removed itself is no error."""
    before = _there(api_server)
    other = Cluster(api_server.kubeconfig, alone=True)
    installed = Installed(other, tmp_path)
    installed.apply_access()
    space = other.namespace()
    for name in ("kept", "removed"):
        make_node(other, f"{name}-{space}", "0")
    other.api.delete(f"/api/v1/nodes/removed-{space}")
    assert {installed.home, installed.functions, space, f"kept-{space}"} < _there(other)
    other.close()
    assert before == _there(api_server)
