"""Latency models: how long a batch takes on an instance of a given size.

One kind a module, all pure: `table` interpolates measurements, `coefficients` is a fitted formula,
`linear` a line. A planner speaks to `LatencyModel` alone.
"""

from __future__ import annotations

from carpool.latency.model import Configuration, LatencyModel, Resources

__all__ = ["Configuration", "LatencyModel", "Resources"]
