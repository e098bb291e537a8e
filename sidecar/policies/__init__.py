"""Batch policies, one a file, and how one is chosen. `carpool.plugins` lists the names."""
