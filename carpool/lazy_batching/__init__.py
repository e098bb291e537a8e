"""LazyBatching (HPCA'21) as a pure state machine, to which ``now`` is passed.

Both the executor inside a function and the simulator use it.
"""
