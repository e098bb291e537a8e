"""The chart's manifests are admitted by a real API server, and its accounts have their rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from faas_stack.provider.kubernetes import rules as provider_rules
from scaler.kubernetes import rules as scaler_rules
from scripts.manifests import MANIFESTS
from tests.charts.objects import objects, of_kind, pods
from tests.cluster.api import Refused
from tests.cluster.chart import Installed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.slow  # it starts an API server
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@pytest.fixture
def installed(api_server: Cluster, tmp_path: Path) -> Installed:
    """The manifests in two new namespaces, which enforce restricted pods."""
    return Installed(api_server, tmp_path)


def test_every_object_is_admitted(installed: Installed) -> None:
    """Every object passes a dry run with strict field validation."""
    found = installed.objects
    assert len(objects(MANIFESTS.read_text())) == len(found)
    for each in found:
        installed.try_out(each)


def test_pods_are_admitted_by_security_standard(installed: Installed) -> None:
    """The pods pass the namespaces' security standard, which is enforced on pods only."""
    for name, spec in pods(installed.objects):
        installed.try_out(_pod(name, spec, installed.home))


def test_a_pod_that_is_not_restricted_is_refused(installed: Installed) -> None:
    """The namespaces refuse a pod that is not restricted."""
    spec = {"containers": [{"name": "c", "image": "i"}]}
    for namespace in (installed.home, installed.functions):
        with pytest.raises(Refused, match="violates PodSecurity"):
            installed.try_out(_pod("any", spec, namespace))


@pytest.mark.parametrize(
    ("account", "home", "functions", "cluster"),
    [
        ("gateway", (), provider_rules.NAMESPACE_RULES, provider_rules.CLUSTER_RULES),
        ("carpool-scaler", scaler_rules.NAMESPACE_RULES, (), scaler_rules.CLUSTER_RULES),
    ],
)
def test_account_may_do_only_what_is_listed(
    installed: Installed, account: str, home: Any, functions: Any, cluster: Any
) -> None:
    """Of all verbs on all resources, an account may do only those listed, in any namespace."""
    installed.apply_access()
    ask = installed.as_account(account)
    for namespace, rules in (
        (installed.home, home),
        (installed.functions, functions),
        ("default", ()),
    ):
        allowed = {*_rights(rules), *_rights(cluster)}
        assert allowed == {
            right
            for right in _all_rights(installed.cluster)
            if ask.may(*right, namespace, scaler_rules.LEASE if "leases" in right[1] else "")
        }


def test_calls_without_permission_are_refused(installed: Installed) -> None:
    """Calls without permission are actually refused, as the access reviews say."""
    installed.apply_access()
    scaler, provider = installed.as_account("carpool-scaler"), installed.as_account("gateway")
    for api, path in (
        (scaler.api, f"/api/v1/namespaces/{installed.functions}/secrets"),
        (provider.api, f"/api/v1/namespaces/{installed.home}/secrets"),
        (provider.api, "/api/v1/nodes"),
    ):
        with pytest.raises(Refused) as refused:
            api.get(path)
        assert 403 == refused.value.status
    assert provider.api.get(f"/api/v1/namespaces/{installed.functions}/secrets")["items"] == []
    assert "items" in scaler.api.get("/api/v1/nodes")


def test_network_policies_select_existing_pods(installed: Installed) -> None:
    """Every network policy selects the pods of a Deployment, as a mismatch would raise no error."""
    labels = [
        each["spec"]["template"]["metadata"]["labels"]
        for each in of_kind(installed.objects, "Deployment")
    ]
    for policy in of_kind(installed.objects, "NetworkPolicy"):
        chosen = policy["spec"]["podSelector"].get("matchLabels", {})
        assert any(chosen.items() <= each.items() for each in labels)


def _pod(name: str, spec: dict[str, Any], namespace: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _rights(rules: Any) -> Iterator[tuple[str, str, str]]:
    """Yield group, resource and verb of everything that the rules or default roles allow."""
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield from ((group, resource, verb) for verb in rule["verbs"])
    for resource in ("selfsubjectaccessreviews", "selfsubjectrulesreviews"):
        yield "authorization.k8s.io", resource, "create"
    yield "authentication.k8s.io", "selfsubjectreviews", "create"


def _all_rights(cluster: Cluster) -> Iterator[tuple[str, str, str]]:
    """Yield group, resource and verb of everything that the API server has."""
    groups = {"": "/api/v1"}
    for group in cluster.api.get("/apis")["groups"]:
        groups[group["name"]] = f"/apis/{group['preferredVersion']['groupVersion']}"
    for name, path in groups.items():
        for resource in cluster.api.get(path)["resources"]:
            yield from ((name, resource["name"], verb) for verb in VERBS)
