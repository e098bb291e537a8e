"""RBAC rules for the scaler's requests to the API server.

The chart's roles consist of exactly these rules; its test compares them.
"""

from __future__ import annotations

__all__ = ["CLUSTER_RULES", "LEASE", "NAMESPACE_RULES"]

LEASE = "carpool-scaler"
_LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}

# In the scaler's own namespace.
NAMESPACE_RULES: tuple[dict[str, list[str]], ...] = (
    {**_LEASES, "verbs": ["create"]},  # which cannot be allowed by name
    {**_LEASES, "resourceNames": [LEASE], "verbs": ["get", "update"]},
)
# In the cluster; without them the scaler plans as if capacity were unlimited.
CLUSTER_RULES: tuple[dict[str, list[str]], ...] = (
    {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]},
)
