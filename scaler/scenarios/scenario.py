"""Scenarios: the load, models, prices and servers that planning and simulation start from.

How they are written in files is not known here: see `scenario_file`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from carpool.latency import LatencyModel
    from scaler.arrivals.processes import ArrivalProcess
    from scaler.planning.cost import Prices
    from scaler.planning.placement import Node

__all__ = ["App", "Function", "Scenario"]


@dataclass(frozen=True, slots=True)
class App:
    """An application that sends requests to a function.

    Attributes:
        name: As in ``X-Carpool-App``.
        slo_s: Its latency objective; the function's unless it has its own.
        arrivals: When its requests arrive.
        accuracy: The least accuracy of its answers, where the model has variants.
    """

    name: str
    slo_s: float
    arrivals: ArrivalProcess
    accuracy: float = 0.0


@dataclass(frozen=True, slots=True)
class Function:
    """A function and its load.

    Attributes:
        name: As the user calls it.
        model_name: Its model in `Scenario.models`.
        model: How long its batches take.
        slo_s: Latency objective of a request.
        percentile: Share of requests that must meet it.
        max_batch: Maximum number of requests in a batch.
        apps: The applications that call it.
        executor: How a batch runs: ``graph``, as a whole, or ``lazy``, stage by stage.
        stages: How many of those its model has.
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
    """What runs where, and what comes.

    Attributes:
        path: Where it was read.
        nodes: The servers; none means that there are always enough.
        prices: Prices and the name of the billing rule.
        models: Latency models by name.
        functions: What runs.
        policies: Parameters by policy.
        horizon_s: How long a simulation lasts.
        seed: What its random numbers begin with.
    """

    path: Path
    nodes: tuple[Node, ...]
    prices: Prices
    models: Mapping[str, LatencyModel]
    functions: tuple[Function, ...]
    policies: Mapping[str, Mapping[str, Any]]
    horizon_s: float = 600.0
    seed: int = 1
