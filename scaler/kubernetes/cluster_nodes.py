"""Keeps the planner's servers those of the cluster.

They are listed again and again rather than watched: a node that is lost counts as lost after 40
seconds anyway, so ten more do not matter, and a list cannot miss anything. What it costs is the
nodes, and every 30 seconds the pods that are no instances, both out of the API server's memory.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from carpool.errors import CarpoolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler.live_planner import Planner
    from scaler.planning.placement import Node

__all__ = ["ClusterNodes", "NodeSource"]

log = logging.getLogger(__name__)

_INTERVAL_S = 10.0


class NodeSource(Protocol):
    """What knows the servers."""

    def nodes(self) -> tuple[Node, ...]:
        """Those that there are for instances."""


class ClusterNodes:
    """The servers, unless a scenario names them.

    Args:
        source: What knows them.
        planner: Whose they are to be.
    """

    def __init__(self, source: NodeSource, planner: Planner) -> None:
        self._source = source
        self._planner = planner
        self._given = planner.nodes_configured
        planner.nodes_configured = True
        self._said = ""

    async def look(self) -> None:
        """List them; those that were known stay if that fails."""
        if self._given:
            return
        try:
            found = await asyncio.to_thread(self._source.nodes)
        except CarpoolError as error:
            self._say(f"the nodes cannot be listed: {error}")
            return
        except Exception:  # the next look may go better, and nothing else would take one
            log.exception("a list of the nodes failed")
            return
        self._planner.nodes = found
        self._say(_described(found))

    async def run(self) -> None:
        """Again and again, until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            await self.look()

    def _say(self, news: str) -> None:
        if news != self._said:
            log.info("%s", news)
        self._said = news


def _described(nodes: Sequence[Node]) -> str:
    """In words that change when a node comes or goes, and not with what is left of one."""
    gpus = sum(node.gpus for node in nodes)
    names = ", ".join(node.name for node in nodes)
    return f"plans for {len(nodes)} nodes with {gpus} GPUs: {names}"
