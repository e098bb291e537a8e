"""``/metrics/targets``: where the replicas' own metrics are, for Prometheus's HTTP discovery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faas_stack.provider.fleet import Fleet

__all__ = ["targets"]


def targets(fleet: Fleet) -> list[dict[str, Any]]:
    """One group per ready replica that can be reached over the network."""
    return [
        {
            "targets": [replica.instance.address],
            "labels": {
                "function_name": f"{function.deployment.service}.{function.deployment.namespace}",
                "instance": replica.instance.name,
            },
        }
        for function in fleet.functions()
        for replica in function.running.replicas
        if replica.instance.ready and not replica.instance.address.startswith("unix:")
    ]
