"""The interface of latency models, and the sizes it uses.

A model returns results for the batch sizes and instance sizes it knows, and None for all others:
a planner must never act on a guess. Nothing here knows prices, servers or objectives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Configuration", "LatencyModel", "Resources"]


class Configuration(NamedTuple):
    """A batch size and an instance size that a planner may try.

    Attributes:
        batch: Requests in a full batch.
        cpu: Cores.
        gpu: Percent of one GPU.
    """

    batch: int
    cpu: float
    gpu: float


class Resources(NamedTuple):
    """Resources that one instance occupies and is billed for.

    Attributes:
        cpu: Cores.
        gpu: Percent of one GPU.
        memory_mb: Memory; 1024 of these make one of the gigabytes that clouds sell.
        gpu_gb: GPU memory if the share of a GPU is sold by it; else 0.
    """

    cpu: float
    gpu: float = 0.0
    memory_mb: float = 0.0
    gpu_gb: float = 0.0


class LatencyModel(Protocol):
    """Predicts how long the batches of one model take."""

    @property
    def load_s(self) -> float:
        """Seconds from starting an instance until its first batch."""

    def predict(self, batch: int, cpu: float, gpu: float, quantile: float = 0.5) -> float | None:
        """Return the seconds that a batch takes; None if not known, or if the batch does not fit.

        Args:
            batch: Requests in the batch.
            cpu: Cores.
            gpu: Percent of one GPU.
            quantile: Share of batches that take no longer, between 0 and 1.
        """

    def resources(self, batch: int, cpu: float, gpu: float) -> Resources:
        """Return the resources of an instance for batches of up to ``batch``."""

    def configurations(self, max_batch: int) -> Iterator[Configuration]:
        """Yield the feasible sizes worth trying with batches of at most ``max_batch``."""
