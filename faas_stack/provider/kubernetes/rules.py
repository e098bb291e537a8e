"""RBAC rules that allow the provider's requests to the API server.

The chart's Roles contain exactly these rules; the chart's test compares them.
"""

from __future__ import annotations

__all__ = ["CLUSTER_RULES", "NAMESPACE_ADMIN_RULES", "NAMESPACE_RULES", "PREPULL_RULES"]

# In each namespace of functions.
NAMESPACE_RULES: tuple[dict[str, list[str]], ...] = (
    {
        "apiGroups": ["apps"],
        "resources": ["deployments"],
        "verbs": ["create", "delete", "get", "list", "update", "watch"],
    },
    {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "patch", "watch"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["services"], "verbs": ["create", "get", "patch"]},
    {
        "apiGroups": [""],
        "resources": ["secrets"],
        "verbs": ["create", "delete", "get", "list", "patch"],
    },
    {
        "apiGroups": ["policy"],
        "resources": ["poddisruptionbudgets"],
        "verbs": ["create", "get", "patch"],
    },
)
# In the cluster; without them, functions are only in the default namespace.
CLUSTER_RULES: tuple[dict[str, list[str]], ...] = (
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]},
)
# In each namespace of functions, with --prepull.
PREPULL_RULES: tuple[dict[str, list[str]], ...] = (
    {
        "apiGroups": ["apps"],
        "resources": ["daemonsets"],
        "verbs": ["create", "delete", "list", "patch"],
    },
)
# In the cluster, in addition to the above: to create and remove namespaces of functions.
NAMESPACE_ADMIN_RULES: tuple[dict[str, list[str]], ...] = (
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create", "delete", "patch"]},
)
