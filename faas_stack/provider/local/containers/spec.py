"""Conversion of a deployment to the Docker Engine's own description of a container.

Pure: the document is the body of ``POST /containers/create``, so every field can be looked up in
the Engine's API reference. Carpool's labels start with ``carpool.``; the function's own
(``com.carpool.slo``, ``com.openfaas.scale.min``) are on the container too, as in OpenFaaS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from faas_stack.provider import container_environment
from faas_stack.provider.container_environment import PORT, SECRETS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from faas_stack.partition.resources import Resources
    from faas_stack.provider.deployment import Deployment

__all__ = ["LABEL", "PORT", "SECRETS", "Place", "document"]

LABEL = "carpool."
_MPS_PIPE = "/tmp/nvidia-mps"  # noqa: S108 - where CUDA looks for the daemon's pipe
_NANO = 10**9
_SHARES_PER_CORE = 1024  # the weight that Docker gives a container by default
_PROCESSES = 4096  # limits fork bombs
_SCRATCH = "rw,nosuid,nodev,size=256m,mode=1777"
_LOG = {"Type": "json-file", "Config": {"max-size": "8m", "max-file": "2"}}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a container runs.

    Attributes:
        stack: Stack of the container; another provider on the same engine has another stack.
        owner: Mark of the provider's state folder.
        network: Private network of the container.
        cores: Cores that it is pinned to; empty if it is not pinned.
        pool: Cores of containers that are not pinned, such as ``0-2``; empty for any.
        gpus: GPUs that the container sees.
        mps: Folder of the MPS daemon's pipe on the engine's machine; empty if there is none.
    """

    stack: str
    owner: str
    network: str
    cores: tuple[str, ...] = ()
    pool: str = ""
    gpus: tuple[str, ...] = ()
    mps: str = ""


def _labels(deployment: Deployment, place: Place) -> dict[str, str]:
    """Return the labels that mark a container as an instance of ``deployment``."""
    return {
        **deployment.labels,
        f"{LABEL}stack": place.stack,
        f"{LABEL}owner": place.owner,
        f"{LABEL}function": deployment.service,
        f"{LABEL}namespace": deployment.namespace,
        f"{LABEL}deployment": deployment.uid,
        f"{LABEL}cores": ",".join(place.cores),
        f"{LABEL}gpus": ",".join(place.gpus),
    }


def document(
    instance: str, deployment: Deployment, resources: Resources, place: Place, secrets: str = ""
) -> dict[str, Any]:
    """Return the engine's description of an instance's container.

    Args:
        instance: Name of the instance.
        deployment: The deployment to run.
        resources: Resources that it may use.
        place: Where it runs.
        secrets: Folder with its secrets on the engine's machine; empty if there is none.
    """
    env = _env(deployment, resources, place)
    return {
        "Image": deployment.image,
        "Env": [f"{name}={value}" for name, value in env.items()],
        "Labels": {**_labels(deployment, place), f"{LABEL}instance": instance},
        "Healthcheck": {"Test": ["NONE"]},  # the provider probes readiness itself, and more often
        "HostConfig": {
            "NetworkMode": place.network,
            "RestartPolicy": {"Name": "no"},  # the provider restarts it, and logs this
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "PidsLimit": _PROCESSES,
            "LogConfig": _LOG,
            "ReadonlyRootfs": deployment.read_only_root,
            "Tmpfs": {"/tmp": _SCRATCH} if deployment.read_only_root else {},  # noqa: S108 - inside
            "Mounts": _mounts(place, secrets),
            **_limits(resources, place),
            **_gpus(place),
        },
    }


def _env(deployment: Deployment, resources: Resources, place: Place) -> Mapping[str, str]:
    """Return the variables to add to the image's own environment."""
    defaults = {}
    if place.gpus:
        defaults["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{resources.gpu_percent:g}"
    return container_environment.of(deployment, resources, defaults)


def _limits(resources: Resources, place: Place) -> dict[str, Any]:
    limits: dict[str, Any] = {"CpusetCpus": ",".join(place.cores) or resources.cpuset or place.pool}
    if resources.cpu is not None:
        limits["NanoCpus"] = int(resources.cpu * _NANO)
    if resources.cpu_share is not None:
        limits["CpuShares"] = max(2, int(resources.cpu_share * _SHARES_PER_CORE))
    if resources.memory_bytes is not None:
        limits["Memory"] = limits["MemorySwap"] = resources.memory_bytes  # swap would hide shortage
    if resources.memory_reserved_bytes is not None:
        limits["MemoryReservation"] = resources.memory_reserved_bytes
    return limits


def _gpus(place: Place) -> dict[str, Any]:
    """Return the request for GPUs, with the IPC namespace shared with an MPS daemon."""
    if not place.gpus:
        return {}
    request = {"DeviceIDs": list(place.gpus), "Capabilities": [["gpu"]]}
    return {"DeviceRequests": [request], **({"IpcMode": "host"} if place.mps else {})}


def _mounts(place: Place, secrets: str) -> list[dict[str, Any]]:
    mounts = []
    if secrets:
        mounts.append(_bind(secrets, SECRETS, read_only=True))
    if place.gpus and place.mps:
        mounts.append(_bind(place.mps, _MPS_PIPE, read_only=False))
    return mounts


def _bind(source: str, target: str, *, read_only: bool) -> dict[str, Any]:
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}
