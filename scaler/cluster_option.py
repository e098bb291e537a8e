"""The servers that instances may be on, where no scenario names them.

Carpool's provider tells what its machine has. Others do not: there is room without end then, as far
as plans go, and the provider refuses what is too many.
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
    """The machine in what ``GET /system/info`` answers; none where nothing is said of it.

    OpenFaaS's gateway wraps what its provider says.
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
