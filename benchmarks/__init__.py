"""Measurements; every number in the documentation comes from here."""

import carpool  # noqa: F401  first: it keeps ONNX Runtime from sending events
