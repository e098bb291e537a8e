"""The control plane: how many instances of which size should run, and when to warm them.

``core`` is pure: arrivals, cost, placement and whatever else planning needs; ``policies`` decide.
"""
