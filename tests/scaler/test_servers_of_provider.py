"""The servers to plan for if no scenario lists them, from a provider's information."""

from __future__ import annotations

from typing import Any

import pytest

from scaler.openfaas_client import nodes_of
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
def test_machine_of_provider_is_parsed(info: dict[str, Any]) -> None:
    """OpenFaaS's gateway wraps the information of its provider."""
    assert (NODE,) == nodes_of(info)


@pytest.mark.parametrize(
    "info", [{}, {"provider": "faasd"}, {"machine": {}}, {"machine": {"cpus": 0}}, {"machine": 2}]
)
def test_missing_machine_means_unlimited_room(info: dict[str, Any]) -> None:
    """Without information about servers, plans assume unlimited room."""
    assert () == nodes_of(info)


def test_gpus_default_to_zero() -> None:
    """A machine listed with cores only has no GPUs."""
    assert 0 == nodes_of({"machine": {"cpus": 2}})[0].gpus
