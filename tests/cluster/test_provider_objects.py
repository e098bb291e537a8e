"""The provider and a real API server: what it stores, what it is allowed, and what is refused.

There are no controllers, so no pod is ever created.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from faas_stack.provider.kubernetes.names import object_name
from faas_stack.provider.kubernetes.rules import CLUSTER_RULES, NAMESPACE_RULES
from tests.cluster.api import Refused
from tests.cluster.providers import play, provider
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from pathlib import Path

    from carpool.http.client import Response
    from tests.cluster.api import Document
    from tests.cluster.cluster import Cluster
    from tests.faas_stack.rig import Rig

pytestmark = pytest.mark.slow
FN = {"service": "fn", "image": "img:1"}
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def space(api_server: Cluster) -> str:
    """A namespace for functions."""
    return api_server.namespace()


def said(answer: Response) -> str:
    """Return the message of an error response."""
    return str(json.loads(answer.body)["error"])


def kept(cluster: Cluster, space: str, name: str = "fn") -> Document:
    """Return the Deployment of a function."""
    return cluster.api.get(f"/apis/apps/v1/namespaces/{space}/deployments/{name}")


def test_functions_are_created_changed_and_deleted(api_server: Cluster, space: str) -> None:
    """The actions of faas-cli create, change and delete Deployments and Services."""

    async def scene(rig: Rig) -> None:
        assert (200, b"[]") == (await rig.call("GET", "/system/functions"))[::2]
        fields = {"labels": {"topic": "cats"}, "envVars": {"a": "$(b)"}, "annotations": {"t": "x"}}
        assert 202 == (await rig.call("POST", "/system/functions", {**FN, **fields})).status
        status = json.loads((await rig.call("GET", "/system/function/fn")).body)
        assert ("fn", space, 1, 0, {"topic": "cats"}, {"a": "$(b)"}) == (
            *(status["name"], status["namespace"], status["replicas"]),
            *(status["availableReplicas"], status["labels"], status["envVars"]),
        )
        before = kept(api_server, space)
        again = await rig.call("POST", "/system/functions", FN)
        assert (409, True) == (again.status, "update it with PUT" in said(again))
        assert 202 == (await rig.call("POST", "/system/scale-function/fn", {"replicas": 3})).status
        assert 3 == kept(api_server, space)["spec"]["replicas"]
        assert 3 == json.loads((await rig.call("GET", "/system/function/fn")).body)["replicas"]
        assert 202 == (await rig.call("PUT", "/system/functions", {**FN, "image": "img:2"})).status
        after = kept(api_server, space)
        assert (3, "img:2") == (
            after["spec"]["replicas"],
            after["spec"]["template"]["spec"]["containers"][0]["image"],
        )
        assert before["spec"]["selector"] == after["spec"]["selector"]
        assert "$(b)" not in after["metadata"]["annotations"]["com.carpool/deployment"]
        service = api_server.api.get(f"/api/v1/namespaces/{space}/services/fn")
        assert (after["metadata"]["uid"], "None") == (
            service["metadata"]["ownerReferences"][0]["uid"],
            service["spec"]["clusterIP"],
        )
        removal = {"functionName": "fn"}
        assert 202 == (await rig.call("DELETE", "/system/functions", removal)).status
        assert 404 == (await rig.call("GET", "/system/function/fn")).status
        assert 404 == (await rig.call("DELETE", "/system/functions", removal)).status
        with pytest.raises(Refused, match="404"):
            kept(api_server, space)
        assert 404 == (await rig.call("PUT", "/system/functions", FN)).status

    play(api_server.kubeconfig, scene, namespace=space)


def test_any_number_of_providers_serve_the_same_functions(api_server: Cluster, space: str) -> None:
    """What one provider deploys, scales and removes is seen by all, including later ones."""

    async def scene(one: Rig) -> None:
        async with provider(api_server.kubeconfig, namespace=space) as two:
            await one.call("POST", "/system/functions", FN)
            await wait_until_async(two.orchestrator.all, what="the function")
            await two.call("POST", "/system/scale-function/fn", {"replicas": 4})
            await wait_until_async(lambda: one.function("fn").replicas == 4, what="the scale")
            async with provider(api_server.kubeconfig, namespace=space) as three:
                assert 4 == three.function("fn").replicas
                await three.call("DELETE", "/system/functions", {"functionName": "fn"})
            await wait_until_async(lambda: not one.orchestrator.all(), what="the removal")

    play(api_server.kubeconfig, scene, namespace=space)


def test_secrets(api_server: Cluster, space: str) -> None:
    """Secrets are managed by the API; foreign ones can be used, but are not listed or changed."""
    path = f"/api/v1/namespaces/{space}/secrets"
    api_server.api.post(path, {"metadata": {"name": "others"}, "data": {"others": "eA=="}})

    async def scene(rig: Rig) -> None:
        assert (200, b"[]") == (await rig.call("GET", "/system/secrets"))[::2]
        steps: list[tuple[str, dict[str, Any], int]] = [
            ("POST", {"name": "key", "value": "one"}, 202),
            ("POST", {"name": "key", "value": "one"}, 409),
            ("PUT", {"name": "key", "value": "two"}, 202),
            ("PUT", {"name": "nope", "value": "two"}, 404),
            ("PUT", {"name": "others", "value": "two"}, 404),
            ("DELETE", {"name": "others"}, 404),
            ("POST", {"name": "../up", "value": "x"}, 400),
            ("POST", {"name": "a", "namespace": "../up", "value": "x"}, 400),
        ]
        for method, document, status in steps:
            assert status == (await rig.call(method, "/system/secrets", document)).status, document
        assert {"key": "dHdv"} == api_server.api.get(f"{path}/key")["data"]
        listed = json.loads((await rig.call("GET", "/system/secrets")).body)
        assert [{"name": "key", "namespace": space}] == listed
        for names, status in ((["key", "others"], 202), (["nope"], 400)):
            document = {**FN, "service": f"fn{status}", "secrets": names}
            assert status == (await rig.call("POST", "/system/functions", document)).status
        assert 202 == (await rig.call("DELETE", "/system/secrets", {"name": "key"})).status
        with pytest.raises(Refused, match="404"):
            api_server.api.get(f"{path}/key")

    play(api_server.kubeconfig, scene, namespace=space)


def test_refusal_has_message_of_the_api_server(api_server: Cluster, space: str) -> None:
    """A refusal has a proper status and the API server's message, and leaves nothing behind."""
    api_server.api.post(
        f"/api/v1/namespaces/{space}/resourcequotas",
        {"metadata": {"name": "small"}, "spec": {"hard": {"count/services": "0"}}},
    )
    api_server.api.patch(
        f"/api/v1/namespaces/{space}/resourcequotas/small/status",
        {"status": {"hard": {"count/services": "0"}, "used": {"count/services": "0"}}},
    )

    async def scene(rig: Rig) -> None:
        refused = await rig.call("POST", "/system/functions", FN)
        assert (403, True) == (refused.status, "exceeded quota: small" in said(refused))
        with pytest.raises(Refused, match="404"):
            kept(api_server, space)
        cases: list[tuple[dict[str, Any], str]] = [
            ({"constraints": ["a key=x"]}, "nodeSelector"),
            ({"constraints": ["alone"]}, "constraints = 'alone'"),
            ({"limits": {"memory": "many"}}, "limits.memory = 'many'"),
            ({"limits": {"no such": "1"}}, "no such"),
            ({"namespace": "elsewhere"}, "labelled openfaas=1"),
        ]
        for fields, part in cases:
            answer = await rig.call("POST", "/system/functions", {**FN, **fields})
            assert 400 == answer.status, answer.body
            assert part in said(answer)

    play(api_server.kubeconfig, scene, namespace=space)


def test_every_name_of_openfaas_can_be_deployed(api_server: Cluster, space: str) -> None:
    """Names that a Service cannot have can be deployed too."""
    names = ["1st", "a" * 63, "x--cpu-1"]

    async def scene(rig: Rig) -> None:
        for name in names:
            answer = await rig.call("POST", "/system/functions", {**FN, "service": name})
            assert 202 == answer.status, answer.body
            kept(api_server, space, object_name(name))
            assert 200 == (await rig.call("GET", f"/system/function/{name}")).status

    play(api_server.kubeconfig, scene, namespace=space)


def test_namespace_is_used_while_it_is_labelled(api_server: Cluster, space: str) -> None:
    """A namespace is used while it has the label set by `faas-cli namespace create`."""
    other = api_server.namespace()
    path = f"/api/v1/namespaces/{other}"

    async def scene(rig: Rig) -> None:
        document = {**FN, "namespace": other}
        assert 400 == (await rig.call("POST", "/system/functions", document)).status
        api_server.api.patch(path, {"metadata": {"labels": {"openfaas": "1"}}})
        await wait_until_async(lambda: other in rig.orchestrator.namespaces(), what="the label")
        assert 202 == (await rig.call("POST", "/system/functions", document)).status
        assert 200 == (await rig.call("GET", f"/system/function/fn.{other}")).status
        api_server.api.patch(path, {"metadata": {"labels": {"openfaas": None}}})
        await wait_until_async(lambda: other not in rig.orchestrator.namespaces(), what="its end")
        assert 404 == (await rig.call("GET", f"/system/function/fn.{other}")).status

    play(api_server.kubeconfig, scene, namespace=space)


def test_registry_login_secret_pulls_the_image(api_server: Cluster, space: str) -> None:
    """Registry logins are recognised by the type of the Secret, without reading any value."""
    config = base64.b64encode(b'{"auths": {}}').decode()
    login = {
        "metadata": {"name": "registry"},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": config},
    }
    api_server.api.post(f"/api/v1/namespaces/{space}/secrets", login)

    async def scene(rig: Rig) -> None:
        await rig.call("POST", "/system/secrets", {"name": "key", "value": "x"})
        for method in ("POST", "PUT"):
            document = {**FN, "secrets": ["key", "registry"]}
            assert 202 == (await rig.call(method, "/system/functions", document)).status
            pod = kept(api_server, space)["spec"]["template"]["spec"]
            assert [{"name": "registry"}] == pod["imagePullSecrets"]
            assert ["key"] == [
                each["secret"]["name"] for each in pod["volumes"][0]["projected"]["sources"]
            ]
        status = json.loads((await rig.call("GET", "/system/function/fn")).body)
        assert ["key", "registry"] == status["secrets"]

    play(api_server.kubeconfig, scene, namespace=space)


def test_namespaces_are_made_changed_and_removed(api_server: Cluster, space: str) -> None:
    """`faas-cli namespace` works; Pod Security labels and foreign namespaces are left alone."""
    name = f"{space}-more"
    document = {"name": name, "labels": {"openfaas": "1", "team": "a"}, "annotations": {"x": "y"}}
    others = api_server.namespace()

    async def scene(rig: Rig) -> None:
        async def call(method: str, path: str, document: object = None) -> int:
            return (await rig.call(method, f"/system/namespace/{path}", document)).status

        assert 400 == await call("POST", "", {"name": name})
        assert 201 == await call("POST", "", document)
        assert 409 == await call("POST", "", document)
        await wait_until_async(lambda: name in rig.orchestrator.namespaces(), what="the new one")
        enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
        api_server.api.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": enforced}})
        assert 202 == await call(
            "PUT", name, {**document, "labels": {"openfaas": "1", "team": "b"}}
        )
        found = json.loads((await rig.call("GET", f"/system/namespace/{name}")).body)
        assert (name, {"x": "y"}) == (found["name"], found["annotations"])
        assert {"openfaas": "1", "team": "b", **enforced}.items() <= found["labels"].items()
        for method in ("GET", "PUT", "DELETE"):
            assert 404 == await call(method, others, {**document, "name": others})
        assert 400 == await call("DELETE", space, document)
        assert 409 == await call("DELETE", space, {**document, "name": space})
        assert 202 == await call("DELETE", name, document)

    play(api_server.kubeconfig, scene, namespace=space)
    assert api_server.api.get(f"/api/v1/namespaces/{name}")["metadata"]["deletionTimestamp"]


def test_a_pod_passes_restricted(api_server: Cluster, space: str) -> None:
    """A pod with every field that a deployment may set passes in a dry run."""
    api_server.api.patch(
        f"/api/v1/namespaces/{space}",
        {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}},
    )
    account = f"/api/v1/namespaces/{space}/serviceaccounts"
    api_server.api.post(account, {"metadata": {"name": "default"}})

    async def scene(rig: Rig) -> None:
        await rig.call("POST", "/system/secrets", {"name": "key", "value": "x"})
        document = {
            **FN,
            "secrets": ["key"],
            "readOnlyRootFilesystem": True,
            "limits": {"cpu": "500m", "memory": "64Mi", "nvidia.com/gpu": "1"},
            "requests": {"cpu": "100m"},
            "envVars": {"any name.1": "x"},
        }
        answer = await rig.call("POST", "/system/functions", document)
        assert 202 == answer.status, answer.body

    play(api_server.kubeconfig, scene, namespace=space)
    template = kept(api_server, space)["spec"]["template"]
    pod = {"metadata": {"generateName": "fn-", **template["metadata"]}, "spec": template["spec"]}
    made = api_server.api.call(
        "POST", f"/api/v1/namespaces/{space}/pods", pod, dryRun="All", fieldValidation="Strict"
    )
    assert not made["spec"]["automountServiceAccountToken"]


def test_provider_rules_are_sufficient_and_minimal(
    api_server: Cluster, space: str, tmp_path: Path
) -> None:
    """An account with only the provider's rules can do everything needed and nothing else."""
    other = api_server.namespace()
    api_server.api.patch(f"/api/v1/namespaces/{other}", {"metadata": {"labels": {"openfaas": "1"}}})
    kubeconfig = _account(api_server, space, tmp_path)

    async def scene(rig: Rig) -> None:
        assert other in rig.orchestrator.namespaces()  # which it may not read
        await rig.call("POST", "/system/secrets", {"name": "key", "value": "x"})
        await rig.call("PUT", "/system/secrets", {"name": "key", "value": "y"})
        steps: list[tuple[str, str, dict[str, Any] | None]] = [
            ("POST", "/system/functions", {**FN, "secrets": ["key"]}),
            ("PUT", "/system/functions", {**FN, "secrets": ["key"]}),
            ("POST", "/system/scale-function/fn", {"replicas": 2}),
            ("GET", "/system/functions", None),
            ("GET", "/system/secrets", None),
            ("GET", "/system/logs?name=fn", None),
            ("DELETE", "/system/functions", {"functionName": "fn"}),
            ("DELETE", "/system/secrets", {"name": "key"}),
        ]
        for method, path, document in steps:
            answer = await rig.call(method, path, document)
            assert answer.status in (200, 202), (path, answer.body)
        foreign = await rig.call("POST", "/system/functions", {**FN, "namespace": other})
        assert (403, True) == (foreign.status, "cannot create resource" in said(foreign))

    play(kubeconfig, scene, namespace=space)


def _account(cluster: Cluster, space: str, folder: Path) -> Path:
    """Return a kubeconfig of a service account with the provider's rules."""
    root = f"/api/v1/namespaces/{space}/serviceaccounts"
    cluster.api.post(root, {"metadata": {"name": "provider"}})
    subject = {"kind": "ServiceAccount", "name": "provider", "namespace": space}
    for kind, path, rules in (
        ("Role", f"{RBAC}/namespaces/{space}", NAMESPACE_RULES),
        ("ClusterRole", RBAC, CLUSTER_RULES),
    ):
        name = f"provider-{space}"
        cluster.make(f"{path}/{kind.lower()}s", {"metadata": {"name": name}, "rules": rules})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
        cluster.make(f"{path}/{kind.lower()}bindings", binding)
    token = cluster.api.post(f"{root}/provider/token", {"spec": {}})["status"]["token"]
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    user = config["contexts"][0]["context"]["user"]
    config["users"] = [{"name": user, "user": {"token": token}}]
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    return file
