"""The planner's servers are the cluster's, as they were listed last."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

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
    error: Exception = field(default_factory=lambda: CarpoolError("forbidden"))
    asked: int = field(default=0)

    def nodes(self) -> tuple[Node, ...]:
        """The servers."""
        self.asked += 1
        if self.found is None:
            raise self.error
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


@pytest.mark.parametrize("error", [KeyError("metadata"), ValueError("a quantity"), OSError()])
def test_a_list_that_fails_for_any_reason_is_not_the_last(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, the servers stay, and the next list counts."""
    planner, listed = Planner(PlannerSettings(Prices())), Listed((FIRST,))
    nodes = ClusterNodes(listed, planner)
    asyncio.run(nodes.look())
    listed.found, listed.error = None, error
    asyncio.run(nodes.look())
    assert "listing the nodes failed" in caplog.text
    assert [FIRST] == list(planner.nodes)
    listed.found = (SECOND,)
    asyncio.run(nodes.look())
    assert [SECOND] == list(planner.nodes)


def test_servers_of_a_scenario_stay() -> None:
    """They are not asked for: the scenario is what was meant."""
    planner, listed = Planner(PlannerSettings(Prices(), (FIRST,))), Listed((SECOND,))
    asyncio.run(ClusterNodes(listed, planner).look())
    assert ((FIRST,), 0) == (planner.nodes, listed.asked)
