"""The planner's servers are the cluster's, as they were listed last."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from carpool.errors import CarpoolError
from scaler.kubernetes.cluster_nodes import ClusterNodes
from scaler.live_planner import Planner, PlannerSettings
from scaler.planning.cost import Prices
from scaler.planning.placement import Node

FIRST, SECOND = Node("first", 4.0), Node("second", 8.0)


@dataclass
class Listed:
    """A cluster that answers with what a test says, or refuses."""

    found: tuple[Node, ...] | None = None
    asked: int = field(default=0)

    def nodes(self) -> tuple[Node, ...]:
        """The servers."""
        self.asked += 1
        if self.found is None:
            message = "forbidden"
            raise CarpoolError(message)
        return self.found


def test_the_nodes_that_were_listed_last_are_the_servers() -> None:
    """A list that fails changes nothing, and the provider's machine is none of them."""
    planner, listed = Planner(PlannerSettings(Prices())), Listed()
    nodes = ClusterNodes(listed, planner)
    assert planner.nodes_configured
    asyncio.run(nodes.look())
    assert [] == list(planner.nodes)
    for found in ((FIRST,), (FIRST, SECOND)):
        listed.found = found
        asyncio.run(nodes.look())
        assert list(found) == list(planner.nodes)
    listed.found = None
    asyncio.run(nodes.look())
    assert [FIRST, SECOND] == list(planner.nodes)


def test_servers_of_a_scenario_stay() -> None:
    """They are not asked for: the scenario is what was meant."""
    planner, listed = Planner(PlannerSettings(Prices(), (FIRST,))), Listed((SECOND,))
    asyncio.run(ClusterNodes(listed, planner).look())
    assert ((FIRST,), 0) == (planner.nodes, listed.asked)
