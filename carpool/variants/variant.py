"""A variant of a model: one way to serve an application, with what was measured of it.

INFaaS's model-variant (ATC'21): architecture, optimisation, largest batch and hardware. Nothing
here knows requests, what runs, or what anything costs.
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
        name: Unique among those of its application.
        accuracy: Share of a validation set that it answers right.
        latencies_s: Seconds of a batch, by batch size; the largest is the largest it takes.
        architecture: Which network; variants of one architecture may replace one another upwards.
        cpu: Cores of an instance.
        gpu: Percent of a GPU of an instance.
        memory_mb: The most memory an instance takes.
        load_s: Seconds to load one.

    Raises:
        ConfigError: numbers that no profile has.
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
        """Refuse what cannot have been measured."""
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
        """The largest batch it takes."""
        return max(self.latencies_s)

    @property
    def saturation_rps(self) -> float:
        """The most requests per second that one instance answers."""
        return max(batch / seconds for batch, seconds in self.latencies_s.items())

    def table(self) -> Table:
        """Its latencies as a model, which interpolates between the measured batch sizes."""
        rows = {
            Configuration(batch, self.cpu, self.gpu): seconds
            for batch, seconds in self.latencies_s.items()
        }
        return Table(rows, self.load_s, self.memory_mb)
