"""Tests of the conversion of deployments to Kubernetes objects and back."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from carpool.errors import ConfigError
from carpool.sync import function_token
from faas_stack.provider.deployment import Deployment
from faas_stack.provider.kubernetes.manifests import (
    as_update,
    dependents,
    manifest,
    read_function,
)
from faas_stack.provider.kubernetes.names import object_name, taken_labels
from faas_stack.provider.kubernetes.options import ClusterScaler, KubernetesOptions

SCALER = ClusterScaler("scaler.carpool:8091", b"t0ken")


def deployment(**fields: Any) -> Deployment:
    """Return the deployment of a function ``fn``, parsed from a client's JSON document."""
    document = {"service": "fn", "image": "img:1", **fields}
    return Deployment.from_json(json.dumps(document).encode())


def made(options: KubernetesOptions | None = None, **fields: Any) -> dict[str, Any]:
    """Return the Deployment of a function."""
    return manifest(deployment(**fields), 2, "1d", options or KubernetesOptions())


def pod(options: KubernetesOptions | None = None, **fields: Any) -> dict[str, Any]:
    """Return the pod spec of a function."""
    spec: dict[str, Any] = made(options, **fields)["spec"]["template"]["spec"]
    return spec


def container(options: KubernetesOptions | None = None, **fields: Any) -> dict[str, Any]:
    """Return the only container of the pod spec."""
    (only,) = pod(options, **fields)["containers"]
    assert isinstance(only, dict)
    return only


def environment(options: KubernetesOptions | None = None, **fields: Any) -> dict[str, str]:
    """Return the environment variables of the container."""
    return {each["name"]: each["value"] for each in container(options, **fields)["env"]}


def stored(document: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """Return a Deployment as the API server stores it."""
    given = {"uid": "u1", "resourceVersion": "7", "creationTimestamp": "2026-01-02T03:04:05Z"}
    return {**document, "metadata": {**document["metadata"], **given, **metadata}}


def test_plain_function_passes_restricted_standard() -> None:
    """A plain function's pod passes the Pod Security Standard ``restricted``.

    It gets no service account token and no variables of the cluster's services.
    """
    spec = pod()
    assert (False, False) == (spec["automountServiceAccountToken"], spec["enableServiceLinks"])
    security = spec["securityContext"]
    assert (True, 1000) == (security["runAsNonRoot"], security["runAsUser"])
    assert {"type": "RuntimeDefault"} == security["seccompProfile"]
    only = container()
    assert {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": False,
    } == only["securityContext"]
    assert ({}, []) == (only["resources"], only["volumeMounts"])
    assert "volumes" not in spec
    assert "nodeSelector" not in spec
    assert "schedulerName" not in spec
    assert "imagePullPolicy" not in only


def test_new_pod_is_ready_before_old_one_drains() -> None:
    """A new pod is ready before an old one ends, and an old one drains before it is stopped."""
    document = made()["spec"]
    assert {"maxSurge": 1, "maxUnavailable": 0} == document["strategy"]["rollingUpdate"]
    assert {"preStop": {"sleep": {"seconds": 3}}} == container()["lifecycle"]
    assert 3 + 91 == pod()["terminationGracePeriodSeconds"]
    assert 3 + 10 + 60 + 1 == pod(envVars={"exec_timeout": "10s"})["terminationGracePeriodSeconds"]
    assert 3 + 300 == pod(envVars={"exec_timeout": "0"})["terminationGracePeriodSeconds"]


def test_environment_values_are_escaped() -> None:
    """Environment values reach the container unchanged, with Kubernetes's substitutions escaped."""
    env = environment(
        envProcess="python x",
        envVars={"own": "a $(HOME) $$ b"},
        labels={"com.carpool.slo": "200ms", "com.carpool.cpu": "2"},
    )
    assert ("python x", "fn", "openfaas-fn") == (
        *(env["fprocess"], env["OPENFAAS_NAME"]),
        env["OPENFAAS_NAMESPACE"],
    )
    assert ("a $$(HOME) $$$$ b", "/var/openfaas/secrets") == (env["own"], env["secret_mount_path"])
    assert ("200ms", "2") == (env["carpool_slo"], env["OMP_NUM_THREADS"])


def test_limits_and_requests() -> None:
    """Labels override limits, and resources that Carpool does not know are passed on."""
    given = container(
        labels={"com.carpool.cpu": "0.5"},
        limits={"cpu": "2", "memory": "128Mi", "example.com/fpga": "1"},
        requests={"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "1Gi"},
    )["resources"]
    assert {"cpu": "500m", "memory": str(128 * 2**20), "example.com/fpga": "1"} == given["limits"]
    assert {
        "cpu": "100m",
        "memory": str(64 * 2**20),
        "ephemeral-storage": "1Gi",
    } == given["requests"]


def test_pinned_cores_are_guaranteed() -> None:
    """Pinned cores are whole, and no request is set, so that it equals the limit."""
    given = container(
        constraints=["cpu=pinned"],
        labels={"com.carpool.cpu": "1.6"},
        limits={"memory": "128Mi"},
        requests={"cpu": "100m", "memory": "1Mi"},
    )["resources"]
    assert {"limits": {"cpu": "2000m", "memory": str(128 * 2**20)}} == given


@pytest.mark.parametrize(
    ("fields", "slots", "expected", "remark"),
    [
        ({"limits": {"nvidia.com/gpu": "1"}}, 1, "1", ""),
        ({"limits": {"nvidia.com/gpu": "2"}}, 10, "20", ""),
        ({"labels": {"com.carpool.gpu": "40"}}, 1, "1", "40 % of a GPU rounded up to a whole one"),
        ({"labels": {"com.carpool.gpu": "40"}}, 10, "4", ""),
        ({"labels": {"com.carpool.gpu": "41"}}, 10, "5", "rounded up to 5 of 10 shares"),
        ({"labels": {"com.carpool.gpu": "30"}}, 10, "3", ""),
    ],
)
def test_gpu_shares_are_rounded_up(
    fields: dict[str, Any], slots: int, expected: str, remark: str
) -> None:
    """Shares of GPUs are rounded up to what nodes offer, with a remark."""
    options = KubernetesOptions(gpu_resource="nvidia.com/gpu.shared", gpu_slots=slots)
    rounded = read_function(stored(made(options, **fields))).rounded
    assert remark in rounded if remark else not rounded
    assert {"nvidia.com/gpu.shared": expected} == container(options, **fields)["resources"][
        "limits"
    ]


def test_constraints_choose_nodes() -> None:
    """Both constraint syntaxes of OpenFaaS select nodes; unsupported constraints are refused."""
    constraints = ["zone=a", "node.kubernetes.io/type == gpu", "cpu=pinned"]
    expected = {"zone": "a", "node.kubernetes.io/type": "gpu"}
    assert expected == pod(constraints=constraints)["nodeSelector"]
    wrong = ["cpuset=0-3", "zone!=a", "alone", "=x", "zone="]
    with pytest.raises(ConfigError) as caught:
        pod(constraints=wrong, limits={"cpu": "many"})
    assert ["limits.cpu", *["constraints"] * 5] == [each.name for each in caught.value.problems]
    assert wrong == [each.value for each in caught.value.problems[1:]]


def test_pods_can_use_another_scheduler() -> None:
    """Pods can be placed by another scheduler, such as one that packs them."""
    assert "packing" == pod(KubernetesOptions(scheduler="packing"))["schedulerName"]


def test_secrets_are_files_in_one_folder() -> None:
    """All secrets are files in one folder, and a read-only root comes with a scratch folder."""
    spec = pod(secrets=["key", "cert"], readOnlyRootFilesystem=True)
    secrets, scratch = spec["volumes"]
    sources = [{"secret": {"name": "key"}}, {"secret": {"name": "cert"}}]
    assert {"defaultMode": 0o444, "sources": sources} == secrets["projected"]
    mounts = spec["containers"][0]["volumeMounts"]
    assert ["/var/openfaas/secrets", "/tmp"] == [each["mountPath"] for each in mounts]
    assert {"sizeLimit": "256Mi"} == scratch["emptyDir"]
    assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"]


def test_annotations_change_probe_paths() -> None:
    """OpenFaaS's annotations change the probe paths, for images without a sidecar."""
    annotations = {"com.openfaas.ready.http.path": "/up", "com.openfaas.health.http.path": "/hi"}
    only = container(annotations=annotations)
    paths = [only[each]["httpGet"]["path"] for each in ("readinessProbe", "livenessProbe")]
    assert ["/up", "/hi"] == paths
    assert "/_/ready" == container()["readinessProbe"]["httpGet"]["path"]


def test_pods_get_valid_labels() -> None:
    """Pods get the labels that are valid and not reserved; the document keeps all of them."""
    labels = {
        "topic": "cats",
        "com.carpool.slo": "200ms",
        "faas_function": "other",
        "com.carpool/id": "x",
        "app.kubernetes.io/managed-by": "me",
        "text": "two words",
        "long": "x" * 64,
        "empty": "",
    }
    assert {"topic": "cats", "com.carpool.slo": "200ms", "empty": ""} == taken_labels(labels)
    document = made(labels=labels)
    found = document["spec"]["template"]["metadata"]["labels"]
    assert ("fn", "1d", "carpool") == (
        *(found["faas_function"], found["com.carpool/id"]),
        found["app.kubernetes.io/managed-by"],
    )
    assert {"faas_function": "fn", "com.carpool/id": "1d"} == document["spec"]["selector"][
        "matchLabels"
    ]
    assert labels == read_function(stored(document)).deployment.labels


def test_deployment_is_read_back_from_kubernetes() -> None:
    """A deployment can be read back from its stored Deployment, in any namespace."""
    fields = {
        "namespace": "team",
        "envProcess": "x",
        "envVars": {"a": "b"},
        "constraints": ["zone=a"],
        "secrets": ["key"],
        "labels": {"com.carpool.slo": "1s"},
        "annotations": {"topic": "t"},
        "limits": {"memory": "1Gi"},
        "requests": {"cpu": "1"},
        "readOnlyRootFilesystem": True,
    }
    given = deployment(**fields)
    document = stored(manifest(given, 3, "1d", KubernetesOptions()))
    read = read_function(document)
    assert given == read.deployment
    assert ("1d", "u1", 7, 3, "") == (read.id, read.uid, read.version, read.replicas, read.refusal)
    assert "2026-01-02T03:04:05+00:00" == read.created.isoformat()
    message = 'pods "fn-1" is forbidden: exceeded quota: small'
    document["status"] = {
        "conditions": [
            {"type": "Available", "status": "False", "message": "minimum"},
            {"type": "ReplicaFailure", "status": "True", "message": message},
        ]
    }
    assert message == read_function(document).refusal


def test_unchanged_document_is_parsed_once() -> None:
    """An unchanged document is parsed once, though each ready pod causes a watch event."""
    first, second = (read_function(stored(made(), resourceVersion=each)) for each in "78")
    assert first.deployment is second.deployment
    assert (7, 8) == (first.version, second.version)
    other = read_function(stored(made(image="img:2")))
    elsewhere = read_function(stored(made(), namespace="team"))
    assert ("img:2", "team") == (other.deployment.image, elsewhere.deployment.namespace)


def test_changed_canary_shares_keep_revision() -> None:
    """An update of canary shares alone keeps the revision, as pods do not know the shares."""
    label = "com.carpool.canary"
    first = manifest(deployment(annotations={label: "new=10%"}), 2, "1d", KubernetesOptions())
    for fields in ({"annotations": {label: "new=20%"}}, {"labels": {label: "new=20%"}}, {}):
        second = as_update(deployment(**fields), stored(first))
        document = manifest(second, 2, "1d", KubernetesOptions())
        assert first["spec"]["template"] == document["spec"]["template"]
        assert read_function(stored(document)).deployment.settings.canary == second.settings.canary
    other = as_update(deployment(image="img:2"), stored(first))
    assert other.uid != read_function(stored(first)).revision


def test_repeated_update_replaces_pods() -> None:
    """Two updates with the same document differ, so that each makes Kubernetes replace the pods."""
    one, two = (made()["spec"]["template"]["metadata"]["annotations"] for _ in range(2))
    assert one["com.carpool/revision"] != two["com.carpool/revision"]


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        ("fn", "fn"),
        ("fn--cpu-1", "fn--cpu-1"),
        ("a" * 63, "a" * 63),
        ("1st", "f-1st-"),
        ("a" * 64, "a" * 54 + "-"),
        ("a" * 53 + "-" + "b" * 20, "a" * 53 + "-"),
    ],
)
def test_object_names_are_valid(service: str, expected: str) -> None:
    """Object names are valid names of a Service; changed ones end with a hash of the full name."""
    name = object_name(service)
    assert name.startswith(expected)
    assert len(name) <= 63
    if name != service:
        assert name != object_name(service + "x")
        assert 8 == len(name.rpartition("-")[2])


# -- what goes with a function ------------------------------------------------------------------


def owner() -> dict[str, Any]:
    """Return the metadata of a stored Deployment."""
    metadata: dict[str, Any] = stored(made())["metadata"]
    return metadata


def test_a_function_has_a_headless_service() -> None:
    """A headless service selects the function's pods and is removed with the Deployment."""
    service, _ = dependents(deployment(), owner(), KubernetesOptions())
    assert ("fn", "None") == (service["metadata"]["name"], service["spec"]["clusterIP"])
    assert made()["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    assert [("Deployment", "u1")] == [
        (each["kind"], each["uid"]) for each in service["metadata"]["ownerReferences"]
    ]


@pytest.mark.parametrize(
    ("env", "ports"),
    [
        ({}, [("http", 8080)]),
        ({"sidecar_grpc": "unix:/tmp/grpc.sock"}, [("http", 8080)]),
        ({"sidecar_grpc": "0.0.0.0:9000"}, [("http", 8080), ("grpc", 9000)]),
        (
            {"sidecar_grpc": "0.0.0.0:9000", "sidecar_class": "c1", "sidecar_function": "front"},
            [("http", 8080)],
        ),
    ],
)
def test_service_has_grpc_port(env: dict[str, str], ports: list[tuple[str, int]]) -> None:
    """The service has the gRPC port of the sidecar's setting; an instance of a class has none."""
    served = deployment(envVars=env)
    service, *_ = dependents(served, owner(), KubernetesOptions())
    assert ports == [(each["name"], each["port"]) for each in service["spec"]["ports"]]
    assert ports == [(each["name"], each["targetPort"]) for each in service["spec"]["ports"]]


def test_a_function_has_a_disruption_budget() -> None:
    """Evictions take one pod at a time, even the only one; instances of classes have no budget."""
    _, budget = dependents(deployment(), owner(), KubernetesOptions())
    assert ("PodDisruptionBudget", "fn") == (budget["kind"], budget["metadata"]["name"])
    assert 1 == budget["spec"]["maxUnavailable"]
    assert made()["spec"]["selector"] == budget["spec"]["selector"]
    assert "u1" == budget["metadata"]["ownerReferences"][0]["uid"]
    instance = deployment(envVars={"sidecar_class": "c1", "sidecar_function": "front"})
    kinds = [each["kind"] for each in dependents(instance, owner(), KubernetesOptions())]
    assert ["Service"] == kinds


def test_scaled_function_has_its_own_token() -> None:
    """A scaled function's sidecar gets the scaler's address and a token of its own.

    The stored deployment shows neither.
    """
    options = KubernetesOptions(scaler=SCALER)
    front = {"labels": {"com.carpool.scale.policy": "infless"}}
    env = environment(options, **front)
    assert ("scaler.carpool:8091", "tmp") == (env["sidecar_scaler"], env["sidecar_plan_folder"])
    assert b"t0ken" not in json.dumps(made(options, **front)).encode()
    _, secret, _ = dependents(deployment(**front), owner(), options)
    token = base64.b64decode(secret["data"]["carpool-scaler-token"])
    assert function_token(b"t0ken", "fn") == token
    (volume,) = pod(options, **front)["volumes"]
    assert [{"secret": {"name": secret["metadata"]["name"]}}] == volume["projected"]["sources"]
    assert {} == read_function(stored(made(options, **front))).deployment.env_vars


def test_front_has_small_resource_request() -> None:
    """A front gets a small request instead of its instances' limits, so that it does not starve."""
    options = KubernetesOptions(scaler=SCALER)
    labels = {"com.carpool.scale.policy": "infless", "com.carpool.cpu": "2"}
    found = container(options, labels=labels, limits={"memory": "8Gi"})["resources"]
    assert {"requests": {"cpu": "100m", "memory": "128Mi"}} == found


def test_class_instance_has_token_of_its_front() -> None:
    """An instance of a class has the token of the function that users call."""
    options = KubernetesOptions(scaler=SCALER)
    env = {"sidecar_class": "c1", "sidecar_function": "front"}
    _, secret = dependents(deployment(envVars=env), owner(), options)
    token = base64.b64decode(secret["data"]["carpool-scaler-token"])
    assert function_token(b"t0ken", "front") == token


def test_a_function_that_is_not_scaled_gets_no_token() -> None:
    """A function that is not scaled, or that names a scaler itself, gets no token."""
    options = KubernetesOptions(scaler=SCALER)
    kinds = [each["kind"] for each in dependents(deployment(), owner(), options)]
    assert "Secret" not in kinds
    own = deployment(
        labels={"com.carpool.scale.policy": "infless"}, envVars={"sidecar_scaler": "h:1"}
    )
    assert kinds == [each["kind"] for each in dependents(own, owner(), options)]
    assert "sidecar_scaler" not in environment(options)


def test_registry_logins_pull_images_and_are_not_mounted() -> None:
    """Registry logins are used to pull the image and are not mounted as files.

    OpenFaaS does the same with secrets of the type ``kubernetes.io/dockerconfigjson``.
    """
    function = deployment(secrets=["key", "registry"])
    spec = manifest(function, 1, "1d", KubernetesOptions(), {"registry"})["spec"]["template"][
        "spec"
    ]
    assert [{"name": "registry"}] == spec["imagePullSecrets"]
    (volume,) = spec["volumes"]
    assert [{"secret": {"name": "key"}}] == volume["projected"]["sources"]
    assert "imagePullSecrets" not in pod(secrets=["key"])
