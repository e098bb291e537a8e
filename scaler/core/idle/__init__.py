"""Idle times of a function: what prewarm policies learn from."""
