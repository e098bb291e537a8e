"""Metrics of the machine's capacity for functions and of what is reserved for them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from carpool.prometheus_text import gauge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.prometheus_text import Family
    from faas_stack.provider.backend import Backend

__all__ = ["MachineMetrics"]


class MachineMetrics:
    """Collector that reads the ledger and the GPUs when scraped; omits unlimited resources."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def collect(self) -> Iterator[Family]:
        """Yield the gauges."""
        there, reserved = self._backend.ledger.capacity, self._backend.ledger.reserved()
        for name, unit, has, given in (
            ("cores", "Cores", there.cpu, reserved.cpu),
            ("memory_bytes", "Memory", there.memory_bytes, reserved.memory_bytes),
        ):
            if math.isfinite(has):
                yield gauge(f"provider_{name}", f"{unit} available to functions.", has)
                about = f"{unit} reserved by functions."
                yield gauge(f"provider_reserved_{name}", about, given)
                before = f"The same as provider_reserved_{name}, by its former name."
                yield gauge(f"provider_promised_{name}", before, given)
        text = "Share of time in which a GPU was busy."
        yield gauge("provider_gpu_busy_ratio", text, self._backend.busy_gpus(), "gpu")
