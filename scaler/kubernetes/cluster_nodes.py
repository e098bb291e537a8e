"""Keeps the planner's servers up to date with those of the cluster.

They are listed repeatedly rather than watched: a node that is lost counts as lost after 40 seconds
anyway, so ten more do not matter, and a list cannot miss anything. Each list covers the nodes, and
every 30 seconds the pods that are no instances, both served from the API server's memory.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from carpool.errors import CarpoolError
from scaler.kubernetes.nodes import NO_SERVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler.live_planner import Planner
    from scaler.planning.placement import Node

__all__ = ["ClusterNodes", "NodeSource"]

log = logging.getLogger(__name__)

_INTERVAL_S = 10.0


class NodeSource(Protocol):
    """A source of the cluster's servers."""

    def nodes(self) -> tuple[Node, ...]:
        """Return the servers available for instances."""


class ClusterNodes:
    """Updates the planner's servers, unless a scenario names them.

    Args:
        source: Source of the servers.
        planner: The planner to update.
    """

    def __init__(self, source: NodeSource, planner: Planner) -> None:
        self._source = source
        self._planner = planner
        self._given = planner.nodes_configured
        planner.nodes_configured = True
        self._said = ""

    async def look(self) -> None:
        """List the servers; if that fails, the known ones stay."""
        if self._given:
            return
        try:
            nodes = await asyncio.to_thread(self._source.nodes)
        except CarpoolError as error:
            self._say(f"the nodes cannot be listed: {error}")
            return
        except Exception:  # the next look may go better, and nothing else would take one
            log.exception("listing the nodes failed")
            return
        self._planner.nodes = nodes
        self._say(_described(nodes))

    async def run(self) -> None:
        """List the servers repeatedly until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            await self.look()

    def _say(self, news: str) -> None:
        if news != self._said:
            log.info("%s", news)
        self._said = news


def _described(nodes: Sequence[Node]) -> str:
    """Describe the servers in words that change with the nodes but not with their free capacity."""
    if tuple(nodes) == (NO_SERVER,):
        return "no node accepts instances"
    names = ", ".join(node.name for node in nodes)
    return f"plans for the nodes {names} (GPUs: {sum(node.gpus for node in nodes)})"
