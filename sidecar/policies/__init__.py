"""Batch policies, one per file, and the choice of one. `carpool.plugins` lists the names."""
