"""Simulate scaling policies with the sidecar's and the scaler's own code, without real waiting."""
