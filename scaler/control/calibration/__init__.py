"""Corrects latency models by the execution times that sidecars report."""
