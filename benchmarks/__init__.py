"""Benchmarks that produce every number in the documentation."""

import carpool  # noqa: F401  first: it keeps ONNX Runtime from sending events
