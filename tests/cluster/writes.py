"""How often an account changes something, as the API server counts it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cluster.cluster import Cluster

__all__ = ["Writes"]

_VERBS = ("create", "update", "patch", "delete", "deletecollection")
_COUNTER = "apiserver_flowcontrol_dispatched_requests_total"


class Writes:
    """A flow schema that the account's changes fall under, and nothing else does.

    Args:
        cluster: with the API server that counts; counted from 0 after its restart.
        namespace: of the account.
        account: its name.
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
        """How many there were."""
        found = re.findall(
            rf'^{_COUNTER}{{flow_schema="{self._name}",.*}} (\S+)$',
            self._api.text("/metrics"),
            re.MULTILINE,
        )
        return int(sum(map(float, found)))
