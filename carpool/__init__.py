"""Definitions shared by all parts of Carpool. Imports no other part, and nothing eagerly."""

from __future__ import annotations

import os

__all__ = ["__version__"]

__version__ = "0.1.0"

# From the moment it is imported, ONNX Runtime (1.29 and later) writes an identifier of the device
# and a database of events under ~/.cache/Microsoft and sends them to Microsoft, unless this is 1.
# Every process of ours imports this package first. A user who wants to send them sets 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
