"""The servers to plan for if no scenario names them.

Carpool's provider reports what its machine has. Others do not; plans then assume unlimited
capacity, and the provider refuses what exceeds its own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from carpool.errors import ConfigError
from scaler.planning.placement import Node

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["nodes_of"]


def nodes_of(info: Mapping[str, Any]) -> tuple[Node, ...]:
    """Return the machine in a ``GET /system/info`` response; empty if it reports none.

    OpenFaaS's gateway wraps its provider's response.
    """
    said = info.get("provider")
    machine = (said if isinstance(said, dict) else info).get("machine")
    if not isinstance(machine, dict):
        return ()
    try:
        node = Node(
            name="machine",
            cpu=float(machine["cpus"]),
            gpus=int(machine.get("gpus", 0)),
            memory_mb=float(machine.get("memory_mb", math.inf)),
        )
    except (ConfigError, KeyError, TypeError, ValueError):
        return ()
    return (node,)
