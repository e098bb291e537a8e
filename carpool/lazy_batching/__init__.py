"""LazyBatching (HPCA'21) as a state machine: pure, ``now`` is passed in.

Both the executor inside a function and the simulator drive it.
"""
