"""The chart's manifests at a real API server: admitted, and its accounts may do what they do."""

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
    """The manifests in two namespaces of their own, which enforce restricted pods."""
    return Installed(api_server, tmp_path)


def test_every_object_is_admitted(installed: Installed) -> None:
    """As a dry run, with strict field validation: no field that the API server does not know."""
    found = installed.objects
    assert len(objects(MANIFESTS.read_text())) == len(found)
    for each in found:
        installed.try_out(each)


def test_the_pods_of_ours_are_admitted(installed: Installed) -> None:
    """The namespaces enforce the standard on pods, so pods are what is tried."""
    for name, spec in pods(installed.objects):
        installed.try_out(_pod(name, spec, installed.home))


def test_a_pod_that_is_not_restricted_is_refused(installed: Installed) -> None:
    """The namespaces do enforce it."""
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
def test_an_account_may_do_what_is_listed_and_nothing_else(
    installed: Installed, account: str, home: Any, functions: Any, cluster: Any
) -> None:
    """All verbs of all resources are tried, in both namespaces and a third one, as the account."""
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


def test_what_is_refused_is_refused_by_the_calls_themselves(installed: Installed) -> None:
    """Not only where the API server is asked: reading a Secret, and changing a Deployment."""
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


def test_network_policies_name_pods_that_there_are(installed: Installed) -> None:
    """A policy whose selector fits nothing would let nothing pass, without an error."""
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
    """Group, resource and verb of all that rules allow, and what every account may."""
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield from ((group, resource, verb) for verb in rule["verbs"])
    for resource in ("selfsubjectaccessreviews", "selfsubjectrulesreviews"):
        yield "authorization.k8s.io", resource, "create"
    yield "authentication.k8s.io", "selfsubjectreviews", "create"


def _all_rights(cluster: Cluster) -> Iterator[tuple[str, str, str]]:
    """Group, resource and verb of all that the API server has."""
    groups = {"": "/api/v1"}
    for group in cluster.api.get("/apis")["groups"]:
        groups[group["name"]] = f"/apis/{group['preferredVersion']['groupVersion']}"
    for name, path in groups.items():
        for resource in cluster.api.get(path)["resources"]:
            yield from ((name, resource["name"], verb) for verb in VERBS)
