"""Scenarios: the load, models, prices and servers for planning and simulation.

Their file format is defined elsewhere: see `scenario_file`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from carpool.arrivals.processes import ArrivalProcess
    from carpool.latency import LatencyModel
    from scaler.planning.cost import Prices
    from scaler.planning.placement import Node

__all__ = ["App", "Function", "Scenario"]


@dataclass(frozen=True, slots=True)
class App:
    """An application that sends requests to a function.

    Attributes:
        name: Its name, as in ``X-Carpool-App``.
        slo_s: Its latency objective; by default the function's.
        arrivals: Arrival process of its requests.
        accuracy: Minimum accuracy of its responses, if the model has variants.
    """

    name: str
    slo_s: float
    arrivals: ArrivalProcess
    accuracy: float = 0.0


@dataclass(frozen=True, slots=True)
class Function:
    """A function and its load.

    Attributes:
        name: Name of the function.
        model_name: Key of its model in `Scenario.models`.
        model: Its latency model.
        slo_s: Latency objective of a request.
        percentile: Share of requests that must meet it.
        max_batch: Maximum number of requests in a batch.
        apps: The applications that call it.
        executor: How a batch runs: ``graph``, as a whole, or ``lazy``, stage by stage.
        stages: Number of stages of its model.
    """

    name: str
    model_name: str
    model: LatencyModel
    slo_s: float
    percentile: float
    max_batch: int
    apps: tuple[App, ...]
    executor: str = "graph"
    stages: int = 8


@dataclass(frozen=True, slots=True)
class Scenario:
    """Functions and their load, with the servers, prices and settings to run them with.

    Attributes:
        path: Path of the file that it was read from.
        nodes: The servers; if empty, capacity is unlimited.
        prices: Prices and the name of the billing rule.
        models: Latency models by name.
        functions: The functions.
        policies: Parameters by policy.
        horizon_s: Duration of a simulation.
        seed: Seed of its random numbers.
    """

    path: Path
    nodes: tuple[Node, ...]
    prices: Prices
    models: Mapping[str, LatencyModel]
    functions: tuple[Function, ...]
    policies: Mapping[str, Mapping[str, Any]]
    horizon_s: float = 600.0
    seed: int = 1
