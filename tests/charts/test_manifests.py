"""The committed manifests, as they are applied without Helm."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from carpool import __version__
from faas_stack.provider import kubernetes_command
from faas_stack.provider.kubernetes import rules as provider
from scaler import run_command
from scaler.kubernetes import rules as scaler
from scripts.manifests import CHART, MANIFESTS
from tests.charts.objects import objects, of_kind, pods, violations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.charts.objects import Object

ROOT = Path(__file__).resolve().parents[2]
FOUND = objects(MANIFESTS.read_text())
NAMESPACES = objects((MANIFESTS.parent / "namespaces.yaml").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding"}


def leaves(values: dict[str, Any], before: str = "") -> Iterator[str]:
    """Return the paths of all values; an empty value, a list or a scalar ends a path."""
    for key, value in values.items():
        if isinstance(value, dict) and value and key != "resources":
            yield from leaves(value, f"{before}{key}.")
        else:
            yield f"{before}{key}"


def container(name: str) -> Object:
    """Return the only container of a Deployment."""
    (spec,) = [spec for found, spec in pods(FOUND) if found == name]
    (one,) = spec["containers"]
    return dict(one)


def parsed(parser: argparse.ArgumentParser, args: list[str]) -> argparse.Namespace:
    """Parse a command's arguments, with the kubelet's variables and no abbreviated flag."""
    known = {name for action in parser._actions for name in action.option_strings}
    assert {arg.partition("=")[0] for arg in args} <= known
    return parser.parse_args([arg.replace("$(POD_IP)", "10.0.0.1") for arg in args])


@pytest.mark.parametrize("path", sorted(leaves(VALUES)))
def test_every_value_is_documented(path: str) -> None:
    """The table of docs/kubernetes.md has each value under its full name."""
    assert f"`{path}`" in PAGE


def test_every_documented_value_exists() -> None:
    """Each row of the table is a value that the chart knows."""
    rows = [
        line.split("|")[1]
        for line in PAGE.partition("## Values")[2].splitlines()
        if line[:1] == "|"
    ]
    told = {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    assert told == set(leaves(VALUES))


def test_objects_are_in_existing_namespaces() -> None:
    """Every namespaced object is in a namespace of the manifests, and no name occurs twice."""
    known = {each["metadata"]["name"] for each in NAMESPACES}
    places = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in FOUND]
    assert len(set(places)) == len(places)
    assert all(place in known or kind in CLUSTER_WIDE for kind, place, _ in places)


def test_both_namespaces_enforce_restricted_pods() -> None:
    """The functions' namespace also has the label by which providers find it."""
    for each in NAMESPACES:
        labels = each["metadata"]["labels"]
        assert "restricted" == labels["pod-security.kubernetes.io/enforce"]
    (functions,) = of_kind(NAMESPACES, "Namespace", "openfaas-fn")
    assert "1" == functions["metadata"]["labels"]["openfaas"]


def test_pods_are_restricted() -> None:
    """Pods also have a read-only root file system."""
    for name, spec in pods(FOUND):
        assert [] == violations(spec), name
        assert all(c["securityContext"]["readOnlyRootFilesystem"] for c in spec["containers"])
    with_root = {"containers": [{"name": "c", "image": "i"}]}
    assert "runAsNonRoot" in violations(with_root)


def test_pods_have_probes_and_requests() -> None:
    """No pod gets a request before it is ready, and each requests its resources."""
    for name, _ in pods(FOUND):
        found = container(name)
        assert found["readinessProbe"]["httpGet"]["path"] == "/healthz"
        assert {"cpu", "memory"} == found["resources"]["requests"].keys()
        assert "memory" in found["resources"]["limits"]


def test_services_and_budgets_select_existing_pods() -> None:
    """Their selectors match labels of pods, and their ports are ports of containers."""
    labels = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in of_kind(FOUND, "Deployment")
    }
    for each in of_kind(FOUND, "Service"):
        name = each["spec"]["selector"]["app"]
        assert labels[name]["app"] == name
        ports = {port["name"] for port in container(name)["ports"]}
        assert {port["targetPort"] for port in each["spec"]["ports"]} <= ports
    budgets = of_kind(FOUND, "PodDisruptionBudget")
    assert {"gateway", "carpool-scaler"} == {
        each["spec"]["selector"]["matchLabels"]["app"] for each in budgets
    }


def test_images_are_dockerfile_targets() -> None:
    """Each image is a target of docker/Dockerfile, in this version."""
    text = (ROOT / "docker/Dockerfile").read_text()
    targets = set(re.findall(r"^FROM .* AS (\S+)$", text, re.MULTILINE))
    for name, _ in pods(FOUND):
        image, _, version = container(name)["image"].partition(":")
        assert __version__ == version
        assert image.removeprefix("carpool/") in targets


def test_scaler_command_accepts_its_options() -> None:
    """`carpool scaler run` accepts what the chart passes."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    run_command.add_flags(parser)
    args = parsed(parser, container("carpool-scaler")["args"])
    assert args.kubernetes
    assert ("10.0.0.1:8090", "openfaas/carpool-scaler") == (args.advertise, args.lease)


def test_start_may_be_slow_and_ending_container_still_serves() -> None:
    """A slow start causes no restart, and a container that ends serves until that is known."""
    for name, _ in pods(FOUND):
        found = container(name)
        probe = found["startupProbe"]
        assert 600 == probe["periodSeconds"] * probe["failureThreshold"]
        assert "initialDelaySeconds" not in found["livenessProbe"]
        assert {"preStop": {"sleep": {"seconds": 5}}} == found["lifecycle"]


def test_dns_port_is_open_only_to_cluster_dns() -> None:
    """Port 53 is open only to the cluster's DNS, as any other host would be a way out."""
    for policy in of_kind(FOUND, "NetworkPolicy", "carpool-dns"):
        (rule,) = policy["spec"]["egress"]
        (to,) = rule["to"]
        assert {"matchLabels": {"k8s-app": "kube-dns"}} == to["podSelector"]
        assert "kube-system" in str(to["namespaceSelector"])


def test_traffic_is_denied_by_default() -> None:
    """Both namespaces deny all traffic that no other policy allows."""
    policies = of_kind(FOUND, "NetworkPolicy")
    denied = [
        each["metadata"]["namespace"]
        for each in policies
        if each["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    ]
    assert ["openfaas", "openfaas-fn"] == sorted(denied)


def test_every_listening_port_is_in_a_policy() -> None:
    """A container's port that no policy names could not be reached."""
    for name, _ in pods(FOUND):
        (policy,) = of_kind(FOUND, "NetworkPolicy", name)
        let_in = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        assert {port["containerPort"] for port in container(name)["ports"]} == let_in


def rules(kind: str, name: str) -> list[Object]:
    """Return the rules of a role."""
    (role,) = of_kind(FOUND, kind, name)
    return list(role["rules"])


def test_provider_rights_equal_its_table() -> None:
    """Its rights are exactly those in the provider's own table."""
    assert list(provider.NAMESPACE_RULES) == rules("Role", "gateway")
    assert list(provider.CLUSTER_RULES) == rules("ClusterRole", "carpool-gateway")


def test_scaler_rights_equal_its_table() -> None:
    """Its rights are exactly those in the scaler's own table."""
    assert list(scaler.NAMESPACE_RULES) == rules("Role", "carpool-scaler")
    assert list(scaler.CLUSTER_RULES) == rules("ClusterRole", "carpool-scaler")


def test_provider_command_accepts_its_options() -> None:
    """`carpool provider kubernetes` accepts what the chart passes."""
    found = container("gateway")
    assert ["carpool", "provider", "kubernetes"] == found["command"]
    args = parsed(kubernetes_command._parser(), found["args"])
    assert "openfaas-fn" == args.namespace
    assert "carpool-scaler.openfaas.svc.cluster.local:8091" == args.scaler


def test_accounts_have_no_broad_rights() -> None:
    """There is no wildcard, no cluster role but for lists, and no account that no pod uses."""
    for each in [*of_kind(FOUND, "Role"), *of_kind(FOUND, "ClusterRole")]:
        for rule in each["rules"]:
            assert "*" not in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])
            assert "escalate" not in rule["verbs"]
    for each in of_kind(FOUND, "ClusterRole"):
        assert all({"list", "watch"} >= set(rule["verbs"]) for rule in each["rules"])
    accounts = {each["metadata"]["name"] for each in of_kind(FOUND, "ServiceAccount")}
    assert accounts == {spec["serviceAccountName"] for _, spec in pods(FOUND)}
