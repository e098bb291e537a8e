"""Prewarm policies, one a file. `carpool.plugins` lists the names."""
