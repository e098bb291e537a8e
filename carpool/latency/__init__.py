"""Latency models: how long a batch takes on an instance of a given size.

Each kind has its own module, and all are pure: `table` interpolates measurements, `coefficients` is
a fitted formula, `linear` a line. Planners use `LatencyModel` alone.
"""

from __future__ import annotations

from carpool.latency.model import Configuration, LatencyModel, Resources

__all__ = ["Configuration", "LatencyModel", "Resources"]
