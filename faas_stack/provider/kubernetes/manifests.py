"""Converts functions to objects of Kubernetes and back. Pure.

Everything that a provider needs to know about a function is in its Deployment, with the deployed
document as an annotation. So providers are stateless, and any number of them serve the same
functions.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from carpool import address
from faas_stack.partition.resources import Resources
from faas_stack.provider.container_environment import PORT
from faas_stack.provider.deployment import Deployment
from faas_stack.provider.kubernetes.names import (
    DOCUMENT,
    FUNCTION,
    ID,
    MANAGED,
    REVISION,
    ROUNDED,
    object_name,
    taken_annotations,
    taken_labels,
    token_secret,
    without_bounds,
)
from faas_stack.provider.kubernetes.pod_resources import gpu_remark
from faas_stack.provider.kubernetes.pod_template import pod_spec
from faas_stack.provider.scaler_access import as_run, is_instance, own_token, takes_part
from sidecar.options import SCALER_SECRET

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from faas_stack.provider.kubernetes.options import KubernetesOptions

__all__ = ["StoredFunction", "as_update", "dependents", "manifest", "read_function"]
__all__ += ["set_missing_pods"]

Object = dict[str, Any]
_DOCUMENTS = 4096  # parsed documents in the cache


@dataclass(frozen=True, slots=True)
class StoredFunction:
    """A function as stored in a Deployment.

    Attributes:
        id: Identifier of the Deployment's pods, from its creation to its end.
        uid: UID of the Deployment.
        version: Version that was read; a later one is larger.
        deployment: The deployed function.
        replicas: Desired number of replicas.
        created: When it was first deployed.
        refusal: Why Kubernetes creates no pods of it, for example because of a quota; or empty.
        rounded: How its share of a GPU was rounded, if it was.
        nodes: Labels of the nodes that it may run on.
        logins: Secrets used to pull its image.
        revision: Revision of its newest pods.
        gives_way: Whether an update may end a pod before its successor is ready.
    """

    id: str
    uid: str
    version: int
    deployment: Deployment
    replicas: int
    created: datetime
    refusal: str = ""
    rounded: str = ""
    nodes: tuple[tuple[str, str], ...] = ()
    logins: tuple[str, ...] = ()
    revision: str = ""
    gives_way: bool = False


def manifest(
    deployment: Deployment,
    replicas: int,
    identity: str,
    options: KubernetesOptions,
    logins: Collection[str] = (),
) -> Object:
    """Return the Deployment of a function.

    Args:
        deployment: The function to deploy.
        replicas: Desired number of replicas.
        identity: Identifier of its pods; the same for all updates.
        options: How functions are run.
        logins: Those of its secrets that are used to pull the image.

    Raises:
        ConfigError: If something in it cannot be read.
    """
    scaled = options.scaler is not None and takes_part(deployment)
    pod = _of_one_pod(deployment)
    run = as_run(pod, options.scaler.address) if options.scaler and scaled else pod
    found_by = {FUNCTION: deployment.service, ID: identity}
    labels = {**taken_labels(deployment.labels), **MANAGED, **found_by}
    document = {"service": deployment.service, **deployment.to_json()}
    template = {
        "metadata": {
            "labels": {**taken_labels(pod.labels), **MANAGED, **found_by},
            "annotations": {**taken_annotations(pod.annotations), REVISION: deployment.uid},
        },
        "spec": pod_spec(run, options, token_secret(deployment.service) if scaled else "", logins),
    }
    rounded = gpu_remark(Resources.of(run), options)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": object_name(deployment.service),
            "namespace": deployment.namespace,
            "labels": labels,
            "annotations": {
                DOCUMENT: orjson.dumps(document).decode(),
                **({ROUNDED: rounded} if rounded else {}),
            },
        },
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 1,
            "selector": {"matchLabels": found_by},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "template": template,
        },
    }


def as_update(deployment: Deployment, live: Mapping[str, Any]) -> Deployment:
    """Return ``deployment`` with the revision for updating a live Deployment.

    If only its canaries or the bounds on the number of replicas differ, it has the same revision,
    so that its pods stay. If nothing differs, it replaces them, as in OpenFaaS.
    """
    before = read_function(live)
    only_bounds = before.deployment != deployment and (
        _of_one_pod(before.deployment) == _of_one_pod(deployment)
    )
    return replace(deployment, uid=before.revision) if only_bounds else deployment


def _of_one_pod(deployment: Deployment) -> Deployment:
    """Return the part that does not depend on the number of replicas or the division of calls."""
    deployment = deployment.without_canary()
    return replace(
        deployment,
        labels=without_bounds(deployment.labels),
        annotations=without_bounds(deployment.annotations),
        settings=replace(deployment.settings, scale_min=1, scale_max=None),
    )


def dependents(
    deployment: Deployment, owner: Mapping[str, Any], options: KubernetesOptions
) -> list[Object]:
    """Return the objects that a Deployment owns: Service, scaler token and disruption budget.

    With the budget, nodes that are drained at once take one pod after the other. Instances of a
    front have none: the front sends their requests elsewhere.

    Args:
        deployment: The deployed function.
        owner: Metadata of the Deployment as stored.
        options: How functions are run.
    """
    found_by = {FUNCTION: deployment.service, ID: owner["labels"][ID]}
    metadata = {
        "namespace": deployment.namespace,
        "labels": {**MANAGED, **found_by},
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": owner["name"],
                "uid": owner["uid"],
            }
        ],
    }
    service: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": owner["name"], **metadata},
        "spec": {
            "clusterIP": "None",
            "selector": found_by,
            "ports": _ports(deployment),
        },
    }
    return [
        service,
        *_token(deployment, metadata, options),
        *([] if is_instance(deployment) else [_budget(owner["name"], metadata, found_by)]),
    ]


def _token(
    deployment: Deployment, metadata: Mapping[str, Any], options: KubernetesOptions
) -> list[Object]:
    """Return the Secret with a function's own scaler token, if it has one."""
    if options.scaler is None or not takes_part(deployment):
        return []
    token = base64.b64encode(own_token(options.scaler.token, deployment)).decode()
    secret: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": token_secret(deployment.service), **metadata},
        "data": {SCALER_SECRET: token},
    }
    return [secret]


def _budget(name: str, metadata: Mapping[str, Any], found_by: Mapping[str, str]) -> Object:
    """Return the budget by which evictions leave all pods of a function but one.

    A single pod can be evicted; otherwise its node could never be drained.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, **metadata},
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": found_by},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _ports(deployment: Deployment) -> list[Object]:
    """Return the Service's ports: HTTP, and gRPC where the function's sidecar serves it by TCP."""
    ports: list[Object] = [{"name": "http", "port": PORT, "targetPort": PORT}]
    where = deployment.env_vars.get("sidecar_grpc", "").strip()
    if where and not is_instance(deployment) and (port := address.parse(where).port):
        ports.append({"name": "grpc", "port": port, "targetPort": port})
    return ports


def read_function(stored: Mapping[str, Any]) -> StoredFunction:
    """Return the function that a Deployment runs.

    Raises:
        KeyError: The Deployment does not belong to a function.
        CarpoolError: This version of Carpool cannot read the function.
    """
    metadata, spec = stored["metadata"], stored["spec"]
    conditions = stored.get("status", {}).get("conditions", ())
    template = spec.get("template", {})
    pod = template.get("spec", {})
    return StoredFunction(
        id=metadata["labels"][ID],
        uid=metadata["uid"],
        version=int(metadata["resourceVersion"]),
        deployment=_deployed(metadata["annotations"][DOCUMENT], metadata["namespace"]),
        replicas=spec.get("replicas", 1),
        created=datetime.fromisoformat(metadata["creationTimestamp"]),
        refusal=next(
            (
                condition.get("message", "")
                for condition in conditions
                if condition["type"] == "ReplicaFailure" and condition["status"] == "True"
            ),
            "",
        ),
        rounded=metadata["annotations"].get(ROUNDED, ""),
        nodes=tuple(sorted(pod.get("nodeSelector", {}).items())),
        logins=tuple(each["name"] for each in pod.get("imagePullSecrets", ())),
        revision=template.get("metadata", {}).get("annotations", {}).get(REVISION, ""),
        gives_way=_gives_way(stored),
    )


def set_missing_pods(live: Mapping[str, Any], pods: int) -> None:
    """Set how many old pods an update of a live Deployment may end before new ones are ready.

    If its strategy was changed to one that ends all of them first, it stays so.
    """
    if rolling := _rolling(live):
        rolling["maxUnavailable"] = pods


def _gives_way(live: Mapping[str, Any]) -> bool:
    strategy = live["spec"].get("strategy") or {}
    return strategy.get("type") == "Recreate" or _rolling(live).get("maxUnavailable", 0) != 0


def _rolling(live: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a Deployment's rolling updates; empty if it has none."""
    strategy = live["spec"].get("strategy") or {}
    return strategy.get("rollingUpdate") or {}


@lru_cache(_DOCUMENTS)
def _deployed(text: str, namespace: str) -> Deployment:
    """Return the deployment stored in an annotation.

    The result is cached because a Deployment is read again whenever one of its pods becomes ready.
    """
    return Deployment.from_json(orjson.dumps({**orjson.loads(text), "namespace": namespace}))
