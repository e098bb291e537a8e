"""Latency models, corrected by the execution times that sidecars report."""
