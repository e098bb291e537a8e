"""Which servers there are, where no scenario says: as far as a provider tells."""

from __future__ import annotations

from typing import Any

import pytest

from scaler.cluster_option import nodes_of
from scaler.planning.placement import Node

MACHINE = {"cpus": 3.5, "memory_mb": 1024, "gpus": 1}
NODE = Node("machine", 3.5, 1, 1024.0)


@pytest.mark.parametrize(
    "info",
    [
        {"provider": "carpool", "machine": MACHINE},
        {"provider": {"provider": "carpool", "machine": MACHINE}, "arch": "x86_64"},
    ],
    ids=["a provider", "behind a gateway"],
)
def test_a_machine_is_read(info: dict[str, Any]) -> None:
    """OpenFaaS's gateway wraps what its provider says."""
    assert (NODE,) == nodes_of(info)


@pytest.mark.parametrize(
    "info", [{}, {"provider": "faasd"}, {"machine": {}}, {"machine": {"cpus": 0}}, {"machine": 2}]
)
def test_who_says_nothing_of_servers_leaves_them_open(info: dict[str, Any]) -> None:
    """There is room without end then, as far as plans go."""
    assert () == nodes_of(info)


def test_without_a_word_of_gpus_there_are_none() -> None:
    """A machine of two cores and nothing else."""
    assert 0 == nodes_of({"machine": {"cpus": 2}})[0].gpus
