"""Queries a cluster for ``carpool doctor --kubernetes`` without changing it.

Pods are sent to the API server as a dry run, which passes all admission checks and stores nothing.
What this user may not query stays unknown and is no finding.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from carpool.errors import CarpoolError
from carpool.kubernetes_api import KubernetesApiError
from carpool.latency import Resources as Size
from faas_stack.doctor.context import Autoscaler, ClusterState
from faas_stack.partition.resources import Resources
from faas_stack.provider.deployment import DEFAULT_NAMESPACE
from faas_stack.provider.kubernetes.names import FUNCTION, MANAGED, NAMESPACE_SELECTOR, object_name
from faas_stack.provider.kubernetes.options import KubernetesOptions
from faas_stack.provider.kubernetes.pod_template import pod_spec
from faas_stack.provider.kubernetes.rules import NAMESPACE_RULES
from faas_stack.stack.deploy_request import deployment_of
from scaler.kubernetes.nodes import nodes_of, taken_by

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from carpool.kubernetes_api import KubernetesApi
    from faas_stack.doctor.context import FunctionContext
    from scaler.planning.placement import Node

__all__ = ["ask", "namespace_of", "size_of"]

_ACCOUNT = "gateway"  # name of the service account in the chart
_BYTES_PER_MB = 1e6
_FORBIDDEN, _NOT_FOUND = 403, 404
_AUTOSCALERS = {
    "HorizontalPodAutoscaler": "autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
    "ScaledObject": "keda.sh/v1alpha1/namespaces/{}/scaledobjects",
}


def namespace_of(context: FunctionContext) -> str:
    """Return the namespace in which a function is deployed."""
    return context.function.namespace or DEFAULT_NAMESPACE


def size_of(context: FunctionContext) -> Size:
    """Return the size that one instance of a function requests; zero if it cannot be read."""
    try:
        each = Resources.of(deployment_of(context.function))
    except CarpoolError:  # reported when the file is read
        return Size(0.0)
    cpu, memory_bytes = each.cpu_share, each.memory_reserved_bytes
    if each.pinned or cpu is None:
        cpu = each.cores
    if each.pinned or memory_bytes is None:
        memory_bytes = each.memory_bytes or 0
    return Size(cpu, each.gpu_percent, memory_bytes / _BYTES_PER_MB)


def ask(api: KubernetesApi, contexts: Sequence[FunctionContext], home: str) -> ClusterState:
    """Return the state of the cluster.

    Args:
        api: API of the cluster.
        contexts: The functions.
        home: Namespace in which Carpool is installed.

    Raises:
        KubernetesApiError: If the cluster cannot be reached.
    """
    api.call("GET", "/version")  # later calls may be forbidden, this one never is
    namespaces = sorted({namespace_of(context) for context in contexts})
    reasons = {name: _no_namespace(api, name) for name in namespaces}
    there = [name for name in namespaces if "does not exist" not in reasons[name]]
    account = f"system:serviceaccount:{home}:{_ACCOUNT}"
    return ClusterState(
        autoscalers=tuple(each for name in there for each in _autoscalers(api, name)),
        namespaces={name: why for name, why in reasons.items() if why},
        refusals=tuple(_refusals(api, contexts, there)),
        nodes=_nodes(api, contexts),
        missing_rights=tuple(
            (f"{home}/{_ACCOUNT}", right)
            for name in there
            for right in _missing_rights(api, account, name)
        ),
        unpinned=tuple(_unpinned(api)),
    )


def _no_namespace(api: KubernetesApi, name: str) -> str:
    """Return why a namespace is not one for functions. Empty if it is."""
    try:
        namespace = api.call("GET", f"/api/v1/namespaces/{quote(name, safe='')}")
    except KubernetesApiError as error:
        return "does not exist" if error.code == _NOT_FOUND else ""
    key, _, value = NAMESPACE_SELECTOR.partition("=")
    labelled = (namespace["metadata"].get("labels") or {}).get(key) == value
    return "" if labelled or name == DEFAULT_NAMESPACE else f"has no label {NAMESPACE_SELECTOR}"


def _autoscalers(api: KubernetesApi, namespace: str) -> Iterator[Autoscaler]:
    for kind, path in _AUTOSCALERS.items():
        with suppress(KubernetesApiError):  # KEDA is missing, or this user may not list
            for each in api.objects(f"/apis/{path.format(quote(namespace, safe=''))}"):
                target = each["spec"]["scaleTargetRef"]
                if target.get("kind", "Deployment") == "Deployment":
                    name = each["metadata"]["name"]
                    yield Autoscaler(kind, namespace, name, target["name"])


def _refusals(
    api: KubernetesApi, contexts: Iterable[FunctionContext], namespaces: Sequence[str]
) -> Iterator[tuple[str, str]]:
    for context in contexts:
        namespace = namespace_of(context)
        if namespace not in namespaces:
            continue
        try:
            pod = _pod(context)
        except CarpoolError:  # reported when the file is read
            continue
        try:
            path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
            api.call("POST", path, pod, {"dryRun": "All"})
        except KubernetesApiError as error:
            if not (error.code == _FORBIDDEN and "cannot create" in str(error)):
                yield context.function.name, str(error)


def _pod(context: FunctionContext) -> dict[str, Any]:
    deployment = deployment_of(context.function)
    labels = {**MANAGED, FUNCTION: context.function.name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": f"{object_name(context.function.name)}-", "labels": labels},
        "spec": pod_spec(deployment, KubernetesOptions(namespace=namespace_of(context))),
    }


def _nodes(api: KubernetesApi, contexts: Iterable[FunctionContext]) -> tuple[Node, ...] | None:
    """Return the nodes; None if this user may not list them or the pods.

    What these functions use now counts as free, as it is requested again.
    """
    own = ",".join(f"{FUNCTION}!={context.function.name}" for context in contexts)
    others = {"labelSelector": own}
    try:
        taken = taken_by(api.objects("/api/v1/pods", others))
        return nodes_of(api.objects("/api/v1/nodes"), taken)
    except KubernetesApiError:
        return None


def _missing_rights(api: KubernetesApi, account: str, namespace: str) -> Iterator[str]:
    for rule in NAMESPACE_RULES:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                resource_name, _, sub = resource.partition("/")
                (group,) = rule["apiGroups"]
                attributes = {"group": group, "resource": resource_name, "subresource": sub}
                if not _may(api, account, {**attributes, "verb": verb, "namespace": namespace}):
                    yield f"{verb} {resource} in {namespace}"


def _may(api: KubernetesApi, account: str, attributes: dict[str, str]) -> bool:
    """Return whether an account has a permission; True if this user may not ask."""
    _, _, namespace, _ = account.split(":")
    groups = ["system:authenticated", "system:serviceaccounts"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": account,
            "groups": [*groups, f"system:serviceaccounts:{namespace}"],
            "resourceAttributes": attributes,
        },
    }
    try:
        answer = api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    except KubernetesApiError:
        return True
    return bool(answer["status"].get("allowed"))


def _unpinned(api: KubernetesApi) -> Iterator[str]:
    """Yield the nodes whose kubelet reports that it has no static CPU manager."""
    with suppress(KubernetesApiError):
        for node in api.objects("/api/v1/nodes"):
            name = node["metadata"]["name"]
            with suppress(KubernetesApiError, KeyError):
                configuration = api.call(
                    "GET", f"/api/v1/nodes/{quote(name, safe='')}/proxy/configz"
                )
                if configuration["kubeletconfig"].get("cpuManagerPolicy", "none") != "static":
                    yield name
