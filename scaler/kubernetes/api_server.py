"""Client of the Kubernetes API server for the scaler's Lease, nodes and pods only."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from carpool.kubernetes_api import KubernetesApi, KubernetesApiError
from scaler.control.class_function import CLASS_LABEL
from scaler.kubernetes.lease import Record
from scaler.kubernetes.nodes import GPU, nodes_of, taken_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler.planning.placement import Node

__all__ = ["ApiServer"]

_LEASES = "/apis/coordination.k8s.io/v1/namespaces"
_ADDRESS = "carpool/address"  # annotation with the holder's address
_OTHERS = f"!{CLASS_LABEL}"  # without the many instances of classes, which plans place
_CACHED = {"resourceVersion": "0"}  # from the API server's memory, not its store
_RUNNING = "status.phase!=Succeeded,status.phase!=Failed"
_PODS_S = 30.0  # how long a list of the cluster's pods is used
_NOT_FOUND = 404
_TIMES = "%Y-%m-%dT%H:%M:%S.%fZ"
_US_PER_MS = _MS_PER_S = 1000


class ApiServer:
    """API server of the cluster that this process runs in, or else of the kubeconfig's.

    Args:
        lease: The Lease, ``[NAMESPACE/]NAME``; the namespace defaults to the account's own.
        gpu: Resource name of a GPU, or of a share of one.
        gpu_slots: Number of such shares per GPU; 0 to use each node's label.

    Attributes:
        lease: The Lease, by its full name.

    Raises:
        ConfigError: There is neither an account nor a kubeconfig.
    """

    def __init__(self, lease: str, gpu: str = GPU, gpu_slots: int = 0) -> None:
        self._api = KubernetesApi()
        namespace, _, name = lease.rpartition("/")
        self._namespace, self._name = namespace or self._api.namespace, name
        self.lease = f"{self._namespace}/{self._name}"
        self._gpu, self._gpu_slots = gpu, gpu_slots
        self._taken: dict[str, dict[str, float]] = {}
        self._taken_s = -math.inf

    def read(self) -> Record | None:
        """Read the Lease; None if there is none.

        Raises:
            KubernetesApiError: The Lease cannot be read.
        """
        try:
            return _record(self._api.call("GET", self._path(self._name)))
        except KubernetesApiError as error:
            if error.code == _NOT_FOUND:
                return None
            raise

    def write(self, record: Record) -> Record:
        """Write the Lease unless it has changed since it was read, and return its new state.

        Raises:
            KubernetesApiError: The Lease has changed, or cannot be written.
        """
        lease = _document(record, self._name, self._namespace)
        if record.version:
            return _record(self._api.call("PUT", self._path(self._name), lease))
        return _record(self._api.call("POST", self._path(), lease))

    def nodes(self) -> tuple[Node, ...]:
        """Return the servers for instances; what other pods take of them is up to 30 s old.

        Raises:
            KubernetesApiError: Nodes or pods cannot be listed.
        """
        if (now_s := time.monotonic()) >= self._taken_s + _PODS_S:
            params = {"labelSelector": _OTHERS, "fieldSelector": _RUNNING, **_CACHED}
            self._taken = taken_by(self._api.objects("/api/v1/pods", params))
            self._taken_s = now_s
        nodes = self._api.objects("/api/v1/nodes", _CACHED)
        return nodes_of(nodes, self._taken, gpu=self._gpu, gpu_slots=self._gpu_slots)

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def _path(self, *name: str) -> str:
        return "/".join((_LEASES, quote(self._namespace, safe=""), "leases", *map(quote, name)))


def _record(lease: Mapping[str, Any]) -> Record:
    metadata, spec = lease["metadata"], lease.get("spec") or {}
    return Record(
        holder=spec.get("holderIdentity") or "",
        address=(metadata.get("annotations") or {}).get(_ADDRESS, ""),
        term_ms=_milliseconds(spec.get("acquireTime")),
        renewed_ms=_milliseconds(spec.get("renewTime")),
        duration_s=float(spec.get("leaseDurationSeconds") or 0),
        transitions=int(spec.get("leaseTransitions") or 0),
        version=metadata["resourceVersion"],
    )


def _document(record: Record, name: str, namespace: str) -> dict[str, Any]:
    version = {"resourceVersion": record.version} if record.version else {}
    annotations = {_ADDRESS: record.address}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations, **version},
        "spec": {
            "holderIdentity": record.holder,
            "acquireTime": _time(record.term_ms),
            "renewTime": _time(record.renewed_ms),
            "leaseDurationSeconds": math.ceil(record.duration_s),
            "leaseTransitions": record.transitions,
        },
    }


def _time(since_ms: int) -> str:
    """Format a time as Kubernetes does, with six decimal places."""
    seconds, rest_ms = divmod(since_ms, _MS_PER_S)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest_ms * _US_PER_MS)
    return moment.strftime(_TIMES)


def _milliseconds(text: str | None) -> int:
    """Parse the time in a Lease into milliseconds since the epoch; 0 if there is none."""
    if not text:
        return 0
    moment = datetime.fromisoformat(text)
    return int(moment.timestamp()) * _MS_PER_S + moment.microsecond // _US_PER_MS
