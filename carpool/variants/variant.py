"""A variant of a model: one way to serve an application, with its measurements.

This is INFaaS's model-variant (ATC'21): architecture, optimization, largest batch and hardware. It
is independent of requests, running instances and prices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.latency.model import Configuration
from carpool.latency.table import Table
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NAME_PATTERN", "Variant"]

# A variant's name is part of an OpenFaaS function's, with the application's before it.
NAME_PATTERN = r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?"


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant and its profile.

    Attributes:
        name: Name, unique within its application.
        accuracy: Share of a validation set that it predicts correctly.
        latencies_s: Seconds of a batch, by batch size; the largest key is the largest batch.
        architecture: Network; variants of one architecture may replace one another upwards.
        cpu: Cores of an instance.
        gpu: Percent of a GPU of an instance.
        memory_mb: Maximum memory of an instance.
        load_s: Seconds to load an instance.

    Raises:
        ConfigError: values that no profile can have.
    """

    name: str
    accuracy: float
    latencies_s: Mapping[int, float]
    architecture: str = ""
    cpu: float = 1.0
    gpu: float = 0.0
    memory_mb: float = 0.0
    load_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse values that cannot have been measured."""
        problems = Problems()
        if not 0 <= self.accuracy <= 1:
            problems.add(f"{self.name}.accuracy", self.accuracy, "a share from 0 to 1")
        for name in ("cpu", "gpu", "memory_mb", "load_s"):
            value = getattr(self, name)
            if not 0 <= value < math.inf or (name == "cpu" and not value):
                problems.add(f"{self.name}.{name}", value, "an amount, of cores above 0")
        if not self.latencies_s:
            problems.add(f"{self.name}.latencies_s", "{}", "at least one batch size")
        for batch, seconds in self.latencies_s.items():
            if batch < 1 or not 0 < seconds < math.inf:
                expected = "seconds above 0 of a batch of at least 1"
                problems.add(f"{self.name}.latencies_s.{batch}", seconds, expected)
        problems.raise_if_any()

    @property
    def batch_max(self) -> int:
        """Largest batch size."""
        return max(self.latencies_s)

    @property
    def saturation_rps(self) -> float:
        """Maximum number of requests per second of one instance."""
        return max(batch / seconds for batch, seconds in self.latencies_s.items())

    def table(self) -> Table:
        """Return its latencies as a model, which interpolates between the measured batch sizes."""
        rows = {
            Configuration(batch, self.cpu, self.gpu): seconds
            for batch, seconds in self.latencies_s.items()
        }
        return Table(rows, self.load_s, self.memory_mb)
