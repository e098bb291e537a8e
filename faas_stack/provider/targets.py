"""The replicas' own metrics: their addresses for Prometheus's HTTP discovery, and the way to them.

Only the provider can reach a replica: a process on a socket, a container on the functions' network.
The provider passes on the replicas' metrics at its own address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from carpool.errors import NotFound, Overloaded
from carpool.http.client import ConnectionFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faas_stack.provider.orchestrator import Orchestrator
    from faas_stack.provider.replica import Replica

__all__ = ["replica_metrics", "targets"]

_PASSED_ON = "/metrics/replicas/"
_TIMEOUT_S = 5.0
_OK = 200


def targets(orchestrator: Orchestrator[Any], here: str) -> list[dict[str, Any]]:
    """Return one target group per ready replica.

    Args:
        orchestrator: Orchestrator of the provider.
        here: Address of the provider as seen by the caller.
    """
    groups = []
    for function in orchestrator.all():
        name = f"{function.deployment.service}.{function.deployment.namespace}"
        for replica in function.running:
            instance = replica.instance
            if not instance.ready:
                continue
            labels = {
                "function_name": name,
                "instance": instance.name,
                "__metrics_path__": f"{_PASSED_ON}{instance.name}",
            }
            groups.append({"targets": [here], "labels": labels})
    return groups


async def replica_metrics(orchestrator: Orchestrator[Any], name: str) -> bytes:
    """Return the metrics of a replica's sidecar.

    Raises:
        NotFound: There is no such replica, or it is not ready or has no metrics.
        Overloaded: The replica does not respond now.
    """
    replicas: Iterator[Replica] = (
        replica for function in orchestrator.all() for replica in function.running
    )
    replica = next((r for r in replicas if r.instance.name == name and r.instance.ready), None)
    if replica is None:
        message = f"no ready replica {name!r}: expected one of those that /metrics/targets lists"
        raise NotFound(message)
    try:
        answer = await replica.pool.request("GET", "/metrics", timeout_s=_TIMEOUT_S)
    except (ConnectionFailed, TimeoutError) as error:
        message = f"replica {name!r} does not return its metrics: {error}"
        raise Overloaded(message) from error
    if answer.status != _OK:
        message = f"replica {name!r} has no metrics: status {answer.status}"
        raise NotFound(message)
    return answer.body
