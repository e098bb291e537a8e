"""The planner's servers, which are those of the last list of the cluster."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

import pytest

from carpool.errors import CarpoolError
from scaler.kubernetes.cluster_nodes import ClusterNodes
from scaler.kubernetes.nodes import nodes_of
from scaler.live_planner import Planner, PlannerSettings
from scaler.planning.cost import Prices
from scaler.planning.placement import Node

FIRST, SECOND = Node("first", 4.0), Node("second", 8.0)


@dataclass
class Listed:
    """A cluster that returns the given nodes or raises an error."""

    found: tuple[Node, ...] | None = None
    error: Exception = field(default_factory=lambda: CarpoolError("forbidden"))
    asked: int = field(default=0)

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes."""
        self.asked += 1
        if self.found is None:
            raise self.error
        return self.found


def test_servers_are_nodes_listed_last() -> None:
    """The servers are the nodes listed last; a failed list changes nothing."""
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


def test_log_names_the_nodes_or_says_that_there_are_none(caplog: pytest.LogCaptureFixture) -> None:
    """The nodes to plan for are logged by name; a cluster without any is logged as such."""
    caplog.set_level(logging.INFO)
    listed = Listed((FIRST, SECOND))
    nodes = ClusterNodes(listed, Planner(PlannerSettings(Prices())))
    asyncio.run(nodes.look())
    listed.found = nodes_of([], {})
    asyncio.run(nodes.look())
    assert ["plans for the nodes first, second (GPUs: 0)", "no node accepts instances"] == (
        caplog.messages
    )


@pytest.mark.parametrize("error", [KeyError("metadata"), ValueError("a quantity"), OSError()])
def test_failed_list_keeps_servers_and_listing_continues(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """A failed list is logged and keeps the servers, and the next list applies."""
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


def test_scenario_servers_replace_cluster_nodes() -> None:
    """With servers from a scenario, the cluster's nodes are not listed."""
    planner, listed = Planner(PlannerSettings(Prices(), (FIRST,))), Listed((SECOND,))
    asyncio.run(ClusterNodes(listed, planner).look())
    assert ((FIRST,), 0) == (planner.nodes, listed.asked)
