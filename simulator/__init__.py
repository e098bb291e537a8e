"""Scaling policies in simulated time: the sidecar's and the scaler's own code, without waiting."""
