"""Exact laws of batches and queues, under given arrivals and execution times."""
