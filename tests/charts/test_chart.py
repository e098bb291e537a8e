"""The chart, rendered by helm."""

from __future__ import annotations

import subprocess
from itertools import pairwise

import pytest

from faas_stack.provider.kubernetes import rules
from scripts.manifests import CHART, MANIFESTS, PLACE, rendered
from tests.charts.objects import objects, of_kind, pods, violations
from tests.tools import require_tool


@pytest.fixture(scope="session")
def helm() -> str:
    """Return the path of the program."""
    return require_tool("helm")


def test_the_manifests_are_rendered_from_the_chart(helm: str) -> None:
    """The committed manifests are what the chart renders now; `make manifests` updates them."""
    assert MANIFESTS.read_text() == rendered(helm)


def test_the_chart_is_well_formed(helm: str) -> None:
    """`helm lint` accepts the chart."""
    command = [helm, "lint", "--strict", str(CHART), *PLACE]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert 0 == done.returncode, done.stdout


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["networkPolicy.dnsTo=null", "autoscaler.enabled=false"],
        ["basic_auth=false"],
        ["autoscaler.enabled=false"],
        ["rbac=false", "clusterRole=false"],
        ["exposeServices=true"],
        ["exposeServices=true", "serviceType=LoadBalancer"],
        ["networkPolicy.create=false", "serviceMonitor.create=true"],
        ["functionNamespace="],
        ["gateway.replicas=5", "autoscaler.replicas=1", "autoscaler.scenario=cluster: {}"],
        ["gateway.nodeSelector.a=b", "tolerations[0].operator=Exists"],
        [
            "functions.prepull=true",
            "gateway.manageNamespaces=true",
            "extraFunctionNamespaces={a,b}",
        ],
        ["networkPolicy.gatewayFrom[0].podSelector.matchLabels.app=ingress"],
    ],
)
def test_every_choice_renders_to_restricted_pods(helm: str, settings: list[str]) -> None:
    """Pods are restricted, and no two objects have the same name."""
    found = objects(rendered(helm, settings, None))
    names = sorted(
        (o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]) for o in found
    )
    assert all(one != other for one, other in pairwise(names))
    assert all([] == violations(spec) for _, spec in pods(found))


def test_monitored_ports_accept_metrics_clients(helm: str) -> None:
    """Ports of the monitors accept what `metricsFrom` names, also if the gateway is restricted."""
    settings = [
        "serviceMonitor.create=true",
        "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.name=monitoring",
        "networkPolicy.gatewayFrom[0].podSelector.matchLabels.app=ingress",
    ]
    found = objects(rendered(helm, settings, None))
    prometheus = {"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}
    monitors = [each["metadata"]["name"] for each in of_kind(found, "ServiceMonitor")]
    assert ["carpool-scaler", "gateway"] == sorted(monitors)
    for name, port in (("gateway", 8080), ("carpool-scaler", 8090)):
        (policy,) = of_kind(found, "NetworkPolicy", name)
        let_in = [r for r in policy["spec"]["ingress"] if {"port": port} in r["ports"]]
        assert any(prometheus in rule["from"] for rule in let_in), name


def test_functions_accept_ingress_callers(helm: str) -> None:
    """Functions accept callers that `functionIngress` names, such as by gRPC, and required ones."""
    caller = "networkPolicy.functionIngress[0]"
    settings = [f"{caller}.ports[0].port=9000", f"{caller}.from[0].podSelector.matchLabels.app=web"]
    expected = {
        "ports": [{"port": 9000}],
        "from": [{"podSelector": {"matchLabels": {"app": "web"}}}],
    }
    for given, allowed in (([], []), (settings, [expected])):
        found = objects(rendered(helm, given, None))
        (policy,) = of_kind(found, "NetworkPolicy", "carpool-functions")
        needed, *others = policy["spec"]["ingress"]
        assert [{"port": 8080}] == needed["ports"]
        assert allowed == others


def test_api_server_addresses_restrict_its_ports(helm: str) -> None:
    """With addresses, nothing else can be reached on the API server's ports."""
    setting = "networkPolicy.apiServerCidrs={10.0.0.1/32,10.0.0.2/32}"
    found = objects(rendered(helm, [setting], None))
    blocks = [{"ipBlock": {"cidr": f"10.0.0.{n}/32"}} for n in (1, 2)]
    for name in ("gateway", "carpool-scaler"):
        (policy,) = of_kind(found, "NetworkPolicy", name)
        (rule,) = [r for r in policy["spec"]["egress"] if {"port": 6443} in r["ports"]]
        assert blocks == rule["to"]


def test_no_scaler_objects_if_autoscaler_is_disabled(helm: str) -> None:
    """There is no account for it, and no token that a provider would ask for."""
    found = objects(rendered(helm, ["autoscaler.enabled=false"], None))
    assert ["gateway"] == [name for name, _ in pods(found)]
    assert not [each for each in found if "carpool-scaler" in str(each)]


def test_missing_credentials_are_generated(helm: str) -> None:
    """The secret has OpenFaaS's names, and a new password each time."""
    found = [objects(rendered(helm, [], None)) for _ in range(2)]
    first, second = (of_kind(each, "Secret", "basic-auth")[0]["data"] for each in found)
    assert {"basic-auth-user", "basic-auth-password"} == first.keys()
    assert first["basic-auth-user"] == second["basic-auth-user"]
    assert first["basic-auth-password"] != second["basic-auth-password"]


def test_optional_rights_match_provider_table(helm: str) -> None:
    """Rights for optional features are those in the provider's own table."""
    settings = ["functions.prepull=true", "gateway.manageNamespaces=true"]
    found = objects(rendered(helm, settings, None))
    (role,) = of_kind(found, "Role", "gateway")
    (wide,) = of_kind(found, "ClusterRole", "carpool-gateway-namespaces")
    own = [*rules.NAMESPACE_RULES, *rules.PREPULL_RULES]
    assert own == role["rules"]
    assert [*own, *rules.NAMESPACE_ADMIN_RULES] == wide["rules"]


def test_managing_namespaces_without_rights_is_refused(helm: str) -> None:
    """The network is not opened for namespaces that the provider cannot create."""
    settings = ["gateway.manageNamespaces=true", "clusterRole=false"]
    with pytest.raises(subprocess.CalledProcessError):
        rendered(helm, settings, None)
    assert rendered(helm, ["rbac=false", *settings], None)  # rights that someone else gives
