"""Conversion of a deployment to the pod that runs an instance of it. Pure.

The pod passes the Pod Security Standard ``restricted``. A pod that is removed gets no new calls for
`DRAIN_S` before its process is told to end: the time that providers may take to learn of it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from carpool.validation.problems import Problems
from faas_stack.partition.resources import Resources, is_front_environment
from faas_stack.provider import container_environment
from faas_stack.provider.call_limit import call_limit_s
from faas_stack.provider.container_environment import PORT, SECRETS
from faas_stack.provider.kubernetes.pod_resources import node_selector, pod_resources
from sidecar.options import SCALER_SECRET

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from faas_stack.provider.deployment import Deployment
    from faas_stack.provider.kubernetes.options import KubernetesOptions

__all__ = ["CONTAINER", "DRAIN_S", "container_security", "pod_security", "pod_spec"]

CONTAINER = "function"
DRAIN_S = 3
_LONGEST_CALL_S = 300  # limit of the grace period of a terminating pod
_FILE = 0o444
# Without a request, it would get only spare CPU time, and be evicted first.
_FRONT = {"requests": {"cpu": "100m", "memory": "128Mi"}}
_READY, _ALIVE = "/_/ready", "/_/health"
_READY_PATH = "com.openfaas.ready.http.path"  # OpenFaaS's annotations
_ALIVE_PATH = "com.openfaas.health.http.path"
_TMP = "/tmp"  # noqa: S108 - inside the container


def pod_spec(
    deployment: Deployment,
    options: KubernetesOptions,
    token: str = "",
    logins: Collection[str] = (),
) -> dict[str, Any]:
    """Return the pod spec that runs one instance.

    Args:
        deployment: The deployment, with the scaler's additions, if any.
        options: Settings for running functions.
        token: Name of the Secret with the function's own scaler token; empty if it has none.
        logins: Secrets of the deployment that are used to pull the image.

    Raises:
        ConfigError: Limits, requests or constraints cannot be read; all of them are reported.
    """
    problems = Problems()
    each = problems.attempt(lambda: Resources.of(deployment)) or Resources()
    selector = node_selector(deployment.constraints, problems)
    problems.raise_if_any()
    pulled = [{"name": name} for name in deployment.secrets if name in logins]
    mounts, volumes = _volumes(deployment, token, logins)
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": _grace_s(deployment),
        "securityContext": pod_security(options),
        **({"nodeSelector": selector} if selector else {}),
        **({"imagePullSecrets": pulled} if pulled else {}),
        **({"schedulerName": options.scheduler} if options.scheduler else {}),
        **({"volumes": volumes} if volumes else {}),
        "containers": [
            {
                "name": CONTAINER,
                "image": deployment.image,
                **(
                    {"imagePullPolicy": options.image_pull_policy}
                    if options.image_pull_policy
                    else {}
                ),
                "env": _env(container_environment.of(deployment, each, {})),
                "ports": [{"name": "http", "containerPort": PORT}],
                "resources": (
                    _FRONT
                    if is_front_environment(deployment.env_vars)
                    else pod_resources(deployment, each, options)
                ),
                "volumeMounts": mounts,
                "lifecycle": {"preStop": {"sleep": {"seconds": DRAIN_S}}},
                **_probes(deployment.annotations),
                "securityContext": container_security(read_only=deployment.read_only_root),
            }
        ],
    }


def pod_security(options: KubernetesOptions) -> dict[str, Any]:
    """Return the pod settings that the Pod Security Standard ``restricted`` requires."""
    return {
        "runAsNonRoot": True,
        "runAsUser": options.user,
        "fsGroup": options.user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security(*, read_only: bool) -> dict[str, Any]:
    """Return the container settings that the Pod Security Standard ``restricted`` requires."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": read_only,
    }


def _env(variables: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the variables with every ``$`` doubled, as Kubernetes would replace ``$(NAME)``."""
    return [{"name": k, "value": v.replace("$", "$$")} for k, v in variables.items()]


def _probes(annotations: Mapping[str, str]) -> dict[str, Any]:
    """Return the container's probes.

    Readiness is asked for every second. An instance is alive if it responds at all within half a
    minute.
    """
    ready, alive = annotations.get(_READY_PATH, _READY), annotations.get(_ALIVE_PATH, _ALIVE)
    return {
        "readinessProbe": {
            "httpGet": {"path": ready, "port": PORT},
            "periodSeconds": 1,
            "timeoutSeconds": 2,
            "failureThreshold": 2,
        },
        "livenessProbe": {
            "httpGet": {"path": alive, "port": PORT},
            "initialDelaySeconds": 30,
            "periodSeconds": 5,
            "timeoutSeconds": 5,
            "failureThreshold": 6,  # a restart would only slow down a pod that is short of cores
        },
    }


def _volumes(
    deployment: Deployment, token: str, logins: Collection[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return mounts and volumes: secrets in one folder, and ``/tmp`` if the root is read-only."""
    mounts, volumes = [], []
    other = {*logins, *([SCALER_SECRET] if token else ())}
    names = [name for name in deployment.secrets if name not in other]
    sources = [{"secret": {"name": name}} for name in (*names, token) if name]
    if sources:
        projected = {"defaultMode": _FILE, "sources": sources}
        volumes.append({"name": "secrets", "projected": projected})
        mounts.append({"name": "secrets", "mountPath": SECRETS, "readOnly": True})
    if deployment.read_only_root:
        volumes.append({"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}})
        mounts.append({"name": "tmp", "mountPath": _TMP})
    return mounts, volumes


def _grace_s(deployment: Deployment) -> int:
    return DRAIN_S + math.ceil(min(call_limit_s(deployment), _LONGEST_CALL_S))
