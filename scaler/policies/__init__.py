"""Scaling policies, one a file: from a snapshot to plans, with ``scaler.core`` to build on."""
