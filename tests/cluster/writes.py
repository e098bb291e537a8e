"""The number of changes by an account, as counted by the API server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cluster.cluster import Cluster

__all__ = ["Writes"]

_VERBS = ("create", "update", "patch", "delete", "deletecollection")
_COUNTER = "apiserver_flowcontrol_dispatched_requests_total"


class Writes:
    """A flow schema that matches only the account's changes.

    Args:
        cluster: cluster whose API server counts, from 0 after each restart of it.
        namespace: namespace of the account.
        account: name of the account.
    """

    def __init__(self, cluster: Cluster, namespace: str, account: str) -> None:
        self._api = cluster.api
        self._name = f"writes-{namespace}"
        subject = {"name": account, "namespace": namespace}
        every = {"apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
        rule = {
            "subjects": [{"kind": "ServiceAccount", "serviceAccount": subject}],
            "resourceRules": [{"verbs": [*_VERBS], **every}],
        }
        level = {"name": "workload-low"}  # as accounts have by default
        spec = {"priorityLevelConfiguration": level, "matchingPrecedence": 9, "rules": [rule]}
        schemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
        cluster.make(schemas, {"metadata": {"name": self._name}, "spec": spec})

    def count(self) -> int:
        """Return the number of changes."""
        found = re.findall(
            rf'^{_COUNTER}{{flow_schema="{self._name}",.*}} (\S+)$',
            self._api.text("/metrics"),
            re.MULTILINE,
        )
        return int(sum(map(float, found)))
